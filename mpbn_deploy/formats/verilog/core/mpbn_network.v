// A network: the core with its memory of weights. Block RAM is filled by the bitstream. The single-port RAM of an
// iCE40 UltraPlus (`MPBN_SPRAM) is not, and is written through the load port before the first sample.
`include "network.vh"
`ifdef MPBN_SPRAM
`ifndef MPBN_BLOCK_RAM  // simulations read the weights from a file
`define MPBN_USES_SPRAM
`endif
`endif
module mpbn_network (
    input  wire                              clk,
    input  wire                              start,
    output wire                              busy,
    input  wire                              load,
    input  wire [`MPBN_ROW_BITS-1:0]         load_address,
    input  wire [1:0]                        load_part,      // of a row: 16 bits
    input  wire [15:0]                       load_weights,
    input  wire                              input_write,
    input  wire [`MPBN_INPUT_BITS-1:0]       input_address,
    input  wire [`MPBN_VALUE_BITS-1:0]       input_value,
    input  wire [`MPBN_SCORE_BITS-1:0]       score_address,
    output wire [`MPBN_STATE_BITS-1:0]       score,
    input  wire [`MPBN_SPIKE_BITS-1:0]       spike_address,
    output wire [`MPBN_LANES-1:0]            spikes,
    output wire                              trace,
    output wire [`MPBN_STATE_BITS-1:0]       trace_voltage,
    output wire                              trace_spike
);
    localparam WIDTH = `MPBN_LANES * `MPBN_WEIGHT_BITS;
    wire [`MPBN_ROW_BITS-1:0] weight_address;
    wire [WIDTH-1:0] weights;
    mpbn_core core (
        .clk(clk), .start(start), .busy(busy), .input_write(input_write), .input_address(input_address),
        .input_value(input_value), .weight_address(weight_address), .weights(weights),
        .score_address(score_address), .score(score), .spike_address(spike_address), .spikes(spikes),
        .trace(trace), .trace_voltage(trace_voltage), .trace_spike(trace_spike));
`ifdef MPBN_USES_SPRAM
    mpbn_spram #(.WIDTH(WIDTH)) weight_memory (
        .clk(clk), .write(load), .address({{(17 - `MPBN_ROW_BITS){1'b0}}, load ? load_address : weight_address}),
        .part(load_part), .written(load_weights), .data(weights));
`else
    wire unused_load = &{1'b0, load, load_address, load_part, load_weights};
    mpbn_memory #(
        .WIDTH(WIDTH), .DEPTH(`MPBN_ROWS), .ADDRESS_BITS(`MPBN_ROW_BITS), .CONTENT("weights.hex")
    ) weight_memory (
        .clk(clk), .read(1'b1), .read_address(weight_address), .data(weights),
        .write(1'b0), .write_address({`MPBN_ROW_BITS{1'b0}}), .written({WIDTH{1'b0}}));
`endif
endmodule
