// The network behind a serial port. Commands are single bytes; numbers are little-endian:
//
//     'I' values      one sample: each value takes two bytes, signed. Answer: 'A', the cycles (three bytes), the class
//                     with the largest score (two bytes), and every score (four bytes each, signed)
//     'S'             the spikes of the last sample. Answer: 'S', and every word of the spike memory, 1 byte per 8 lanes
//     '?'             who is there. Answer: 'M', and the network's identity (three bytes)
//
// Other bytes are ignored, and so is everything until the weights are loaded.
`include "network.vh"
module mpbn_front #(
    parameter CLOCKS = 16,           // cycles of a bit of the serial port
    parameter [23:0] FLASH = 24'h0   // where the weights are in the flash memory, for single-port RAM
) (
    input  wire clk,
    input  wire rx,
    output wire tx,
    output wire busy,
    output wire flash_select,        // active low
    output wire flash_clock,
    output wire flash_out,
    input  wire flash_in
);
    localparam INPUTS = `MPBN_INPUTS, SCORES = `MPBN_SCORES, WORDS = `MPBN_SPIKE_WORDS;
    localparam WORD_BYTES = (`MPBN_LANES + 7) / 8;
    localparam [2:0] WAIT = 0, LOW = 1, HIGH = 2, RUN = 3, BEST = 4, ADDRESS = 5, FETCH = 6, SEND = 7;
    localparam INDEX = `MPBN_INDEX_BITS;
    localparam [INDEX-1:0] LAST_INPUT = INPUTS[INDEX-1:0] - 1'b1, LAST_SCORE = SCORES[INDEX-1:0] - 1'b1,
                           LAST_WORD = WORDS[INDEX-1:0] - 1'b1;

    wire received, sending, loaded, load, running;
    wire [7:0] byte_in;
    wire [`MPBN_ROW_BITS-1:0] load_address;
    wire [1:0] load_part;
    wire [15:0] load_weights;
    wire [`MPBN_STATE_BITS-1:0] score;
    wire [`MPBN_LANES-1:0] spikes;
    reg [2:0] state = WAIT;
    reg [INDEX-1:0] index = 0;       // of an input value, a score or a word of spikes
    reg [7:0] low = 0;
    reg [23:0] cycles = 0;
    reg [`MPBN_SCORE_BITS-1:0] best = 0;
    reg signed [`MPBN_STATE_BITS-1:0] best_score = 0;
    reg [31:0] message = 0;          // bytes to send, the next one lowest
    reg [2:0] bytes = 0;
    reg best_follows = 0, scores_follow = 0, spikes_follow = 0;

    mpbn_uart #(.CLOCKS(CLOCKS)) uart (
        .clk(clk), .rx(rx), .received(received), .byte_in(byte_in), .send(state == SEND && bytes != 0),
        .byte_out(message[7:0]), .sending(sending), .tx(tx));
    mpbn_network network (
        .clk(clk), .start(state == HIGH && received && index == LAST_INPUT), .busy(running), .load(load),
        .load_address(load_address), .load_part(load_part), .load_weights(load_weights), .input_write(state == HIGH && received),
        .input_address(index[`MPBN_INPUT_BITS-1:0]), .input_value(value[`MPBN_VALUE_BITS-1:0]),
        .score_address(index[`MPBN_SCORE_BITS-1:0]), .score(score), .spike_address(index[`MPBN_SPIKE_BITS-1:0]),
        .spikes(spikes), .trace(unused_trace), .trace_voltage(unused_voltage), .trace_spike(unused_spike));
    wire [15:0] value = {byte_in, low};
    wire unused_trace, unused_spike;
    wire [`MPBN_STATE_BITS-1:0] unused_voltage;
    wire unused_value = &{1'b0, value};
    assign busy = state != WAIT;

`ifdef MPBN_SPRAM
    mpbn_loader #(
        .WIDTH(`MPBN_LANES * `MPBN_WEIGHT_BITS), .ROWS(`MPBN_ROWS), .ADDRESS_BITS(`MPBN_ROW_BITS), .FLASH(FLASH)
    ) loader (
        .clk(clk), .done(loaded), .write(load), .address(load_address), .part(load_part), .data(load_weights),
        .flash_select(flash_select), .flash_clock(flash_clock), .flash_out(flash_out), .flash_in(flash_in));
`else
    assign loaded = 1, load = 0, load_address = 0, load_part = 0, load_weights = 0;
    assign flash_select = 1, flash_clock = 0, flash_out = 0;
    wire unused_flash = &{1'b0, flash_in, FLASH};
`endif

    wire [31:0] wide_score = {{(32 - `MPBN_STATE_BITS){score[`MPBN_STATE_BITS-1]}}, score};
    wire better = index == 0 || $signed(score) > best_score;
    always @(posedge clk) case (state)
        WAIT: begin
            index <= 0; scores_follow <= 0; spikes_follow <= 0;
            if (received && loaded) case (byte_in)
                "I": state <= LOW;
                "S": begin message <= "S"; bytes <= 1; spikes_follow <= 1; state <= SEND; end
                "?": begin message <= {`MPBN_IDENTITY, "M"}; bytes <= 4; state <= SEND; end
                default: ;
            endcase
        end
        LOW: if (received) begin low <= byte_in; state <= HIGH; end
        HIGH: if (received) begin
            index <= index == LAST_INPUT ? 0 : index + 1'b1;
            cycles <= 0;
            state <= index == LAST_INPUT ? RUN : LOW;
        end
        RUN: begin
            cycles <= cycles + 1'b1;
            if (cycles != 0 && !running) state <= ADDRESS;
        end
        // The scores are read twice: to find the largest, and to send them.
        ADDRESS: state <= FETCH;
        FETCH: if (scores_follow || spikes_follow) begin
            message <= spikes_follow ? {{(32 - `MPBN_LANES){1'b0}}, spikes} : wide_score;
            bytes <= spikes_follow ? WORD_BYTES[2:0] : 4;
            index <= index + 1'b1;
            if (index == (spikes_follow ? LAST_WORD : LAST_SCORE)) begin scores_follow <= 0; spikes_follow <= 0; end
            state <= SEND;
        end else begin
            if (better) begin best <= index[`MPBN_SCORE_BITS-1:0]; best_score <= score; end
            index <= index == LAST_SCORE ? 0 : index + 1'b1;
            state <= index == LAST_SCORE ? BEST : ADDRESS;
        end
        BEST: begin message <= {cycles, "A"}; bytes <= 4; best_follows <= 1; scores_follow <= 1; state <= SEND; end
        SEND: if (!sending) begin
            message <= message >> 8;
            bytes <= bytes - 1'b1;
            if (bytes == 0) begin
                best_follows <= 0;
                bytes <= best_follows ? 2 : 0;
                message <= {{(32 - `MPBN_SCORE_BITS){1'b0}}, best};
                if (!best_follows) state <= scores_follow || spikes_follow ? ADDRESS : WAIT;
            end
        end
        default: state <= WAIT;
    endcase
endmodule
