// Runs samples through the core in Icarus Verilog, also through a synthesized netlist:
//
//     vvp bench +samples=FILE +answers=FILE [+trace]
//
// The first file holds the values of all samples as decimal numbers. Each line of the second is `c` and the cycles of a
// sample, `s` and a score, or `t` and the voltage and spike of a neuron in one step, in the order of the core.
`include "network.vh"
`timescale 1ns / 1ns
module bench;
    reg clk = 0, start = 0, input_write = 0, traced = 0;
    reg [`MPBN_INPUT_BITS-1:0] input_address = 0;
    reg [`MPBN_VALUE_BITS-1:0] input_value = 0;
    reg [`MPBN_SCORE_BITS-1:0] score_address = 0;
    wire busy, trace, trace_spike;
    wire signed [`MPBN_STATE_BITS-1:0] score, trace_voltage;
    wire [`MPBN_LANES-1:0] spikes;
    integer samples, answers, value, found, cycles, i;
    reg [8*1024-1:0] name;

    mpbn_network network (
        .clk(clk), .start(start), .busy(busy), .load(1'b0), .load_address({`MPBN_ROW_BITS{1'b0}}),
        .load_part(2'b0), .load_weights(16'b0), .input_write(input_write),
        .input_address(input_address), .input_value(input_value), .score_address(score_address), .score(score),
        .spike_address({`MPBN_SPIKE_BITS{1'b0}}), .spikes(spikes), .trace(trace), .trace_voltage(trace_voltage),
        .trace_spike(trace_spike));
    always #5 clk = !clk;

    initial begin
        found = $value$plusargs("samples=%s", name);
        samples = $fopen(name, "r");
        found = $value$plusargs("answers=%s", name);
        answers = $fopen(name, "w");
        traced = $test$plusargs("trace");
        #1000 @(negedge clk);  // block RAM of an iCE40 needs a while after its configuration
        found = $fscanf(samples, "%d", value);
        while (found == 1) begin
            input_write = 1;
            for (i = 0; i < `MPBN_INPUTS; i = i + 1) begin
                input_address = i;
                input_value = value;
                @(negedge clk) found = $fscanf(samples, "%d", value);
            end
            input_write = 0;
            start = 1;
            @(negedge clk) start = 0;
            cycles = 1;
            while (busy) begin
                @(negedge clk) cycles = cycles + 1;
                if (traced && trace) $fdisplay(answers, "t %0d %0d", trace_voltage, trace_spike);
            end
            $fdisplay(answers, "c %0d 0", cycles);
            for (i = 0; i < `MPBN_OUTPUTS; i = i + 1) begin
                score_address = i;
                @(negedge clk) $fdisplay(answers, "s %0d 0", score);
            end
        end
        $fclose(answers);
        $finish;
    end
endmodule
