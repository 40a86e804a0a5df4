// The core: the schedule, the events, the neurons, and the memories between them. `network.vh` holds its numbers,
// and the files *.hex hold the network.
//
//     input values ----------\                      weights            thresholds, biases
//                             \                        |                       |
//     scan --- addresses ---> memories --- words ---> events --- sums ---> neurons ---> scores, trace
//                                ^                                            |
//                                '---------------- words of spikes -----------'
`include "network.vh"
module mpbn_core (
    input  wire                              clk,
    input  wire                              start,
    output wire                              busy,
    input  wire                              input_write,
    input  wire [`MPBN_INPUT_BITS-1:0]       input_address,
    input  wire [`MPBN_VALUE_BITS-1:0]       input_value,
    output wire [`MPBN_ROW_BITS-1:0]         weight_address,
    input  wire [`MPBN_LANES*`MPBN_WEIGHT_BITS-1:0] weights,
    input  wire [`MPBN_SCORE_BITS-1:0]       score_address,  // while not busy
    output wire [`MPBN_STATE_BITS-1:0]       score,
    input  wire [`MPBN_SPIKE_BITS-1:0]       spike_address,  // while not busy
    output wire [`MPBN_LANES-1:0]            spikes,
    output wire                              trace,
    output wire [`MPBN_STATE_BITS-1:0]       trace_voltage,
    output wire                              trace_spike
);
    wire go, passed, events_drained, neurons_drained, emits_word, emits_mark, graded, fires, subtracts, is_output,
         first_step, clears, store, shift;
    wire [12:0] keep_voltage, keep_current;
    wire [`MPBN_ADDRESS_BITS-1:0] address, store_address, place, stored_address;
    wire [`MPBN_ROW_BITS-1:0] row;
    wire [`MPBN_FACTOR_BITS-1:0] factor;
    wire [`MPBN_PARAMETER_BITS-1:0] parameter_address, parameter_read;
    wire [`MPBN_PARAMETER_WIDTH-1:0] parameters;
    wire [`MPBN_STATE_ADDRESS_BITS-1:0] state_address;
    wire [`MPBN_LANES-1:0] stored_spikes;
    wire [`MPBN_VALUE_BITS-1:0] value;
    wire signed [`MPBN_SUM_BITS-1:0] sum;

    mpbn_scan #(
        .LANES(`MPBN_LANES), .STEPS(`MPBN_STEPS), .LAYERS(`MPBN_LAYERS), .CONNECTIONS(`MPBN_CONNECTIONS),
        .CURSORS(`MPBN_CURSORS), .BORDERS(`MPBN_BORDERS), .LAYER_BITS(`MPBN_LAYER_BITS),
        .CONNECTION_BITS(`MPBN_CONNECTION_BITS), .COUNT_BITS(`MPBN_COUNT_BITS), .STEP_BITS(`MPBN_STEP_BITS),
        .ADDRESS_BITS(`MPBN_ADDRESS_BITS), .ROW_BITS(`MPBN_ROW_BITS), .PARAMETER_BITS(`MPBN_PARAMETER_BITS),
        .PLACE_BITS(`MPBN_PLACE_BITS), .PLACES(`MPBN_PLACES), .STATE_ADDRESS_BITS(`MPBN_STATE_ADDRESS_BITS),
        .FACTOR_BITS(`MPBN_FACTOR_BITS)
    ) scan (
        .clk(clk), .start(start), .busy(busy), .go(go), .passed(passed),
        .drained(events_drained && neurons_drained), .emits_word(emits_word), .emits_mark(emits_mark),
        .graded(graded), .address(address), .row(row), .factor(factor), .fires(fires), .subtracts(subtracts),
        .keep_voltage(keep_voltage), .keep_current(keep_current), .is_output(is_output), .first_step(first_step),
        .clears(clears), .store_address(store_address), .parameter_address(parameter_address),
        .state_address(state_address), .place(place));

    wire [`MPBN_ADDRESS_BITS-1:0] read_address =
        busy ? address : {{(`MPBN_ADDRESS_BITS - `MPBN_SPIKE_BITS){1'b0}}, spike_address};
    mpbn_memory #(.WIDTH(`MPBN_LANES), .DEPTH(`MPBN_SPIKE_WORDS), .ADDRESS_BITS(`MPBN_SPIKE_BITS)) spike_memory (
        .clk(clk), .read(go), .read_address(read_address[`MPBN_SPIKE_BITS-1:0]), .data(spikes),
        .write(store), .write_address(stored_address[`MPBN_SPIKE_BITS-1:0]), .written(stored_spikes));
    mpbn_memory #(.WIDTH(`MPBN_VALUE_BITS), .DEPTH(`MPBN_INPUT_WORDS), .ADDRESS_BITS(`MPBN_INPUT_BITS)) input_memory (
        .clk(clk), .read(go), .read_address(address[`MPBN_INPUT_BITS-1:0]), .data(value),
        .write(input_write), .write_address(input_address), .written(input_value));
    mpbn_memory #(
        .WIDTH(`MPBN_PARAMETER_WIDTH), .DEPTH(`MPBN_PARAMETERS), .ADDRESS_BITS(`MPBN_PARAMETER_BITS),
        .CONTENT("parameters.hex")
    ) parameter_memory (
        .clk(clk), .read(1'b1), .read_address(parameter_read), .data(parameters),
        .write(1'b0), .write_address({`MPBN_PARAMETER_BITS{1'b0}}), .written({`MPBN_PARAMETER_WIDTH{1'b0}}));

    wire unused = &{1'b0, read_address[`MPBN_ADDRESS_BITS-1:`MPBN_SPIKE_BITS],  // addresses of inputs and spikes
                    stored_address[`MPBN_ADDRESS_BITS-1:`MPBN_SPIKE_BITS]};     // share a width

    mpbn_events #(
        .LANES(`MPBN_LANES), .WEIGHT_BITS(`MPBN_WEIGHT_BITS), .VALUE_BITS(`MPBN_VALUE_BITS),
        .FACTOR_BITS(`MPBN_FACTOR_BITS), .GRADED_SHIFT(`MPBN_GRADED_SHIFT), .EVENT_BITS(`MPBN_EVENT_BITS),
        .SUM_BITS(`MPBN_SUM_BITS), .ROW_BITS(`MPBN_ROW_BITS), .INTERVAL(`MPBN_LANES > 8 ? `MPBN_LANES : 8)
    ) events (
        .clk(clk), .go(go), .passed(passed), .drained(events_drained), .emits_word(emits_word),
        .emits_mark(emits_mark), .graded(graded), .row(row), .factor(factor), .clears(clears), .spikes(spikes),
        .value(value), .weight_address(weight_address), .weights(weights), .shift(shift), .sum(sum));

    mpbn_neuron #(
        .LANES(`MPBN_LANES), .STATE_BITS(`MPBN_STATE_BITS), .SUM_BITS(`MPBN_SUM_BITS), .SUM_SHIFT(`MPBN_SUM_SHIFT),
        .BIAS_BITS(`MPBN_BIAS_BITS), .BIAS_SHIFT(`MPBN_BIAS_SHIFT), .THRESHOLD_BITS(`MPBN_THRESHOLD_BITS),
        .SUBTRAHEND_BITS(`MPBN_SUBTRAHEND_BITS), .PARAMETER_WIDTH(`MPBN_PARAMETER_WIDTH),
        .PARAMETER_BITS(`MPBN_PARAMETER_BITS), .STATE_ADDRESS_BITS(`MPBN_STATE_ADDRESS_BITS),
        .SCORE_BITS(`MPBN_SCORE_BITS), .ADDRESS_BITS(`MPBN_ADDRESS_BITS), .CURRENTS(`MPBN_CURRENTS),
        .SOFT(`MPBN_SOFT), .NEURON_DECAYS(`MPBN_NEURON_DECAYS), .VOLTAGE_MASK(`MPBN_VOLTAGE_MASK),
        .CURRENT_MASK(`MPBN_CURRENT_MASK), .VOLTAGE_ONE_HOT(`MPBN_VOLTAGE_ONE_HOT),
        .CURRENT_ONE_HOT(`MPBN_CURRENT_ONE_HOT)
    ) neurons (
        .clk(clk), .passed(passed), .drained(neurons_drained), .fires(fires), .subtracts(subtracts),
        .keep_voltage(keep_voltage), .keep_current(keep_current), .is_output(is_output), .first_step(first_step),
        .store_address(store_address), .parameter_address(parameter_address), .state_address(state_address),
        .place(place), .shift(shift), .sum(sum), .parameter_read(parameter_read), .parameters(parameters),
        .store(store), .stored_address(stored_address), .stored_spikes(stored_spikes),
        .score_read(score_address), .score(score), .trace(trace), .trace_voltage(trace_voltage),
        .trace_spike(trace_spike));
endmodule
