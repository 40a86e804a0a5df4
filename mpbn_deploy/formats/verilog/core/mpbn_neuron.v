// The neurons: LANES of them after each mark, one per cycle, in a pipeline of eight stages.
//
//     current <- trunc(current * keep_current / 4096) + sum * 2**SUM_SHIFT
//     voltage <- trunc(voltage * keep_voltage / 4096) + current + bias * 2**BIAS_SHIFT
//     spike    = fires && voltage > threshold * 2**6
//     voltage <- spike ? (subtracts ? voltage - subtrahend * 2**6 : 0) : voltage
//
// States are in a memory: of the LANES neurons at work only, because their steps follow each other, except in loops
// of layers. The number of a signal is the cycle, counted from the mark, in which the first neuron's value is there.
module mpbn_neuron #(
    parameter LANES = 8,
    parameter STATE_BITS = 24,
    parameter SUM_BITS = 18,
    parameter SUM_SHIFT = 6,
    parameter BIAS_BITS = 8,
    parameter BIAS_SHIFT = 6,
    parameter THRESHOLD_BITS = 18,
    parameter SUBTRAHEND_BITS = 1,
    parameter PARAMETER_WIDTH = 27,
    parameter PARAMETER_BITS = 8,
    parameter STATE_ADDRESS_BITS = 3,
    parameter SCORE_BITS = 4,           // of addresses of scores
    parameter ADDRESS_BITS = 8,
    parameter CURRENTS = 0,             // 1: some current outlasts its step
    parameter SOFT = 0,                 // 1: some reset is soft
    parameter NEURON_DECAYS = 0,        // 1: decays are parameters of each neuron, not of its layer
    parameter [12:0] VOLTAGE_MASK = 0,  // bits that some keep_voltage has
    parameter [12:0] CURRENT_MASK = 0,
    parameter VOLTAGE_ONE_HOT = 0,      // 1: every keep_voltage is a power of two, or zero
    parameter CURRENT_ONE_HOT = 0
) (
    input  wire                          clk,
    input  wire                          passed,
    output wire                          drained,
    input  wire                          fires,
    input  wire                          subtracts,
    input  wire [12:0]                   keep_voltage,
    input  wire [12:0]                   keep_current,
    input  wire                          is_output,
    input  wire                          first_step,
    input  wire [ADDRESS_BITS-1:0]       store_address,
    input  wire [PARAMETER_BITS-1:0]     parameter_address,
    input  wire [STATE_ADDRESS_BITS-1:0] state_address,
    input  wire [ADDRESS_BITS-1:0]       place,
    output wire                          shift,
    input  wire signed [SUM_BITS-1:0]    sum,
    output reg  [PARAMETER_BITS-1:0]     parameter_read,
    input  wire [PARAMETER_WIDTH-1:0]    parameters,    // one cycle after their address
    output wire                          store,
    output wire [ADDRESS_BITS-1:0]       stored_address,
    output wire [LANES-1:0]              stored_spikes,
    input  wire [SCORE_BITS-1:0]         score_read,
    output wire signed [STATE_BITS-1:0]  score,         // one cycle after its address
    output wire                          trace,
    output wire signed [STATE_BITS-1:0]  trace_voltage,
    output wire                          trace_spike
);
    localparam LANE_BITS = $clog2(LANES);
    localparam STATES = 1 << STATE_ADDRESS_BITS;
    localparam [LANE_BITS-1:0] LAST_LANE = LANES[LANE_BITS-1:0] - 1'b1;

    // ---- the mark's numbers, kept while its neurons run ----------------------------------------------
    reg first = 0, first_2 = 0;
    reg [ADDRESS_BITS-1:0] store_at;
    reg [PARAMETER_BITS-1:0] parameter_at;
    reg [STATE_ADDRESS_BITS-1:0] state_at;
    reg [SCORE_BITS-LANE_BITS-1:0] score_at;
    always @(posedge clk) if (passed) begin
        first <= first_step;
        store_at <= store_address;
        parameter_at <= parameter_address;
        state_at <= state_address;
        score_at <= place[SCORE_BITS-LANE_BITS-1:0];
    end
    reg [8:1] valid = 0;
    reg [7:1] begins = 0;
    reg [LANE_BITS-1:0] lane = 0;
    always @(posedge clk) begin
        lane <= passed ? 0 : lane + 1'b1;
        if (begins[1]) first_2 <= first;
        valid <= {valid[7:1], passed || (valid[1] && lane != LAST_LANE)};
        begins <= {begins[6:1], passed};
    end
    wire unused_place = &{1'b0, place[ADDRESS_BITS-1:SCORE_BITS-LANE_BITS]};  // an output has few neurons
    assign drained = valid == 0;
    assign shift = valid[5];

    // ---- 1, 2: read the state; the first step of a sample begins at zero -------------------------------
    reg [STATE_ADDRESS_BITS-1:0] read_1, written_8;
    wire signed [STATE_BITS-1:0] voltage_8;
    wire signed [STATE_BITS-1:0] voltage_2;
    always @(posedge clk) read_1 <= passed ? state_address : read_1 + 1'b1;
    mpbn_memory #(.WIDTH(STATE_BITS), .DEPTH(STATES), .ADDRESS_BITS(STATE_ADDRESS_BITS)) voltages (
        .clk(clk), .read(1'b1), .read_address(read_1), .data(voltage_2),
        .write(valid[8]), .write_address(written_8), .written(voltage_8));

    // ---- 3 to 5: decay -----------------------------------------------------------------------------------
    wire signed [STATE_BITS-1:0] kept_voltage_5, kept_current_5;
    wire [12:0] keeps_voltage_3, keeps_current_3;
    mpbn_decay #(.BITS(STATE_BITS), .MASK(VOLTAGE_MASK), .ONE_HOT(VOLTAGE_ONE_HOT)) voltage_decay (
        .clk(clk), .state(first_2 ? {STATE_BITS{1'b0}} : voltage_2), .keep(keeps_voltage_3), .kept(kept_voltage_5));

    // ---- 3 to 5: read the parameters -----------------------------------------------------------------------
    reg [PARAMETER_WIDTH-1:0] parameters_5;
    generate
        if (NEURON_DECAYS != 0) begin : each_neuron
            assign {keeps_current_3, keeps_voltage_3} = parameters[PARAMETER_WIDTH-1 -: 26];
            always @(posedge clk) parameter_read <= begins[1] ? parameter_at : parameter_read + 1'b1;
            reg [PARAMETER_WIDTH-1:0] parameters_4;
            always @(posedge clk) begin parameters_4 <= parameters; parameters_5 <= parameters_4; end
        end else begin : each_layer
            assign keeps_voltage_3 = keep_voltage;
            assign keeps_current_3 = keep_current;
            always @(posedge clk) parameter_read <= begins[2] ? parameter_at : parameter_read + 1'b1;
            always @(posedge clk) parameters_5 <= parameters;
        end
    endgenerate
    wire signed [BIAS_BITS-1:0] bias_5 = parameters_5[0 +: BIAS_BITS];
    reg signed [THRESHOLD_BITS-1:0] threshold_6, threshold_7;
    reg signed [SUBTRAHEND_BITS-1:0] subtrahend_6, subtrahend_7;
    always @(posedge clk) begin
        threshold_6 <= parameters_5[BIAS_BITS +: THRESHOLD_BITS];
        threshold_7 <= threshold_6;
        subtrahend_6 <= parameters_5[BIAS_BITS + THRESHOLD_BITS +: SUBTRAHEND_BITS];
        subtrahend_7 <= subtrahend_6;
    end

    // ---- 6: current; 7: voltage; 8: spike and reset -----------------------------------------------------------
    wire signed [STATE_BITS-1:0] arriving_5 = {{(STATE_BITS - SUM_BITS){sum[SUM_BITS-1]}}, sum} <<< SUM_SHIFT;
    wire signed [STATE_BITS-1:0] wide_bias_5 =
        {{(STATE_BITS - BIAS_BITS){bias_5[BIAS_BITS-1]}}, bias_5} <<< BIAS_SHIFT;
    reg signed [STATE_BITS-1:0] current_6, rest_6, voltage_7, after_8;
    reg spike_8;
    wire signed [STATE_BITS:0] limit_7 =
        {{(STATE_BITS + 1 - THRESHOLD_BITS){threshold_7[THRESHOLD_BITS-1]}}, threshold_7} <<< 6;
    wire signed [STATE_BITS-1:0] less_7 =
        {{(STATE_BITS - SUBTRAHEND_BITS){subtrahend_7[SUBTRAHEND_BITS-1]}}, subtrahend_7} <<< 6;
    wire spike_7 = fires && $signed({voltage_7[STATE_BITS-1], voltage_7}) > limit_7;
    wire signed [STATE_BITS-1:0] reset_7 = SOFT != 0 && subtracts ? voltage_7 - less_7 : 0;
    always @(posedge clk) begin
        current_6 <= CURRENTS != 0 ? kept_current_5 + arriving_5 : arriving_5;
        rest_6 <= kept_voltage_5 + wide_bias_5;
        voltage_7 <= current_6 + rest_6;
        after_8 <= spike_7 ? reset_7 : voltage_7;
        spike_8 <= spike_7;
        written_8 <= begins[7] ? state_at : written_8 + 1'b1;
    end
    assign voltage_8 = after_8;
    assign trace = valid[8];
    assign trace_voltage = after_8;
    assign trace_spike = spike_8;

    // ---- currents, if they outlast a step ------------------------------------------------------------------------
    generate
        if (CURRENTS != 0) begin : currents
            wire signed [STATE_BITS-1:0] current_2;
            reg signed [STATE_BITS-1:0] current_7, current_8;
            always @(posedge clk) begin current_7 <= current_6; current_8 <= current_7; end
            mpbn_memory #(.WIDTH(STATE_BITS), .DEPTH(STATES), .ADDRESS_BITS(STATE_ADDRESS_BITS)) memory (
                .clk(clk), .read(1'b1), .read_address(read_1), .data(current_2),
                .write(valid[8]), .write_address(written_8), .written(current_8));
            mpbn_decay #(.BITS(STATE_BITS), .MASK(CURRENT_MASK), .ONE_HOT(CURRENT_ONE_HOT)) decay (
                .clk(clk), .state(first_2 ? {STATE_BITS{1'b0}} : current_2), .keep(keeps_current_3),
                .kept(kept_current_5));
        end else begin : no_currents
            assign kept_current_5 = 0;
            wire unused_keep = &{1'b0, keeps_current_3};
        end
    endgenerate

    // ---- 8: spikes are collected into a word; the output layer's are counted, or its voltages kept ---------------
    reg [LANE_BITS-1:0] lane_8 = 0;
    reg [LANES-2:0] earlier_8 = 0;  // spikes of the lanes before
    reg first_8 = 0;
    reg [ADDRESS_BITS-1:0] store_8;
    reg [SCORE_BITS-LANE_BITS-1:0] score_8;
    wire signed [STATE_BITS-1:0] before_8;
    localparam [STATE_BITS-1:0] NOTHING = 0;
    wire signed [STATE_BITS-1:0] counted_8 = (first_8 ? NOTHING : before_8) + {{(STATE_BITS - 1){1'b0}}, spike_8};
    always @(posedge clk) begin
        lane_8 <= begins[7] ? 0 : lane_8 + 1'b1;
        if (begins[7]) begin first_8 <= first; store_8 <= store_at; score_8 <= score_at; end
        if (valid[8]) earlier_8 <= stored_spikes[LANES-1:1];
    end
    assign store = valid[8] && fires && lane_8 == LAST_LANE;
    assign stored_address = store_8;
    assign stored_spikes = {spike_8, earlier_8};
    wire [LANE_BITS-1:0] lane_7 = begins[7] ? 0 : lane_8 + 1'b1;
    wire [SCORE_BITS-LANE_BITS-1:0] score_7 = begins[7] ? score_at : score_8;
    mpbn_memory #(.WIDTH(STATE_BITS), .DEPTH(1 << SCORE_BITS), .ADDRESS_BITS(SCORE_BITS)) scores (
        .clk(clk), .read(1'b1), .read_address(valid[7] ? {score_7, lane_7} : score_read), .data(before_8),
        .write(valid[8] && is_output), .write_address({score_8, lane_8}), .written(fires ? counted_8 : after_8));
    assign score = before_8;

`ifdef FORMAL
    // The update in integers without a width: equal wherever a state fits, whatever its parts do (proved by induction).
    localparam WIDE = 2 * STATE_BITS;
    reg [1:0] age = 0;
    reg signed [WIDE-1:0] exact_6, exact_7, reset_8;
    reg [PARAMETER_WIDTH-1:0] parameters_6, parameters_7;
    wire signed [THRESHOLD_BITS-1:0] limit = parameters_7[BIAS_BITS +: THRESHOLD_BITS];
    wire signed [SUBTRAHEND_BITS-1:0] less = parameters_7[BIAS_BITS + THRESHOLD_BITS +: SUBTRAHEND_BITS];
    wire fired = fires && exact_7 > limit * 64;
    always @(posedge clk) begin
        if (age != 3) age <= age + 1'b1;
        exact_6 <= kept_voltage_5 + kept_current_5 + sum * (1 << SUM_SHIFT) + bias_5 * (1 << BIAS_SHIFT);
        exact_7 <= exact_6;
        parameters_6 <= parameters_5;
        parameters_7 <= parameters_6;
        reset_8 <= !fired ? exact_7 : subtracts && SOFT != 0 ? exact_7 - less * 64 : 0;
    end
    localparam signed [WIDE-1:0] LARGEST = (1 << (STATE_BITS - 1)) - 1;
    always @* begin
        assume (exact_7 <= LARGEST && exact_7 >= -LARGEST - 1 && reset_8 <= LARGEST && reset_8 >= -LARGEST - 1);
        if (age >= 2) assert (voltage_7 == exact_7 && spike_7 == fired);
        if (age == 3) assert (after_8 == reset_8);
    end
`endif
endmodule
