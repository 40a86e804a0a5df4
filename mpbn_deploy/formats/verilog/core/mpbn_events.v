// From words of spikes to sums: each set bit is an event, which adds one row of LANES weights to LANES sums.
//
//     word arrives  ->  head: its lowest set bit, one per cycle  ->  weight memory  ->  weight * factor  ->  sums
//
// A word of k spikes takes max(1, k) cycles; an input value is a single event whose factor is the value. A mark
// follows the last word of a time step. When it passes the head, the neurons start; when it reaches the sums, they
// are moved to `sums`, one lane after the other at the neurons' pace, and the next step accumulates meanwhile.
module mpbn_events #(
    parameter LANES = 8,
    parameter WEIGHT_BITS = 8,
    parameter VALUE_BITS = 9,    // of an input value, with a sign
    parameter FACTOR_BITS = 2,   // of the factor of a spike, 2**exponent
    parameter GRADED_SHIFT = 0,  // exponent of the weights that read input values
    parameter EVENT_BITS = 9,    // of the factor of any event, with a sign
    parameter SUM_BITS = 18,
    parameter ROW_BITS = 8,
    parameter INTERVAL = 8       // cycles between marks that the neurons need
) (
    input  wire                         clk,
    output wire                         go,
    output wire                         passed,
    output wire                         drained,
    input  wire                         emits_word,
    input  wire                         emits_mark,
    input  wire                         graded,
    input  wire [ROW_BITS-1:0]          row,
    input  wire [FACTOR_BITS-1:0]       factor,
    input  wire                         clears,
    input  wire [LANES-1:0]             spikes,         // one cycle after an emitted word was taken
    input  wire signed [VALUE_BITS-1:0] value,
    output reg  [ROW_BITS-1:0]          weight_address,
    input  wire [LANES*WEIGHT_BITS-1:0] weights,        // one cycle after their address
    input  wire                         shift,          // the next lane, please
    output wire signed [SUM_BITS-1:0]   sum
);
    localparam LANE_BITS = $clog2(LANES);
    localparam WAIT_BITS = $clog2(INTERVAL);
    localparam [WAIT_BITS-1:0] WAIT = INTERVAL[WAIT_BITS-1:0] - 1'b1;

    // ---- arriving: the memories answer ------------------------------------------------------------
    reg arriving = 0, arriving_mark = 0, arriving_graded = 0;
    reg [ROW_BITS-1:0] arriving_row;
    reg [FACTOR_BITS-1:0] arriving_factor;
    always @(posedge clk) if (go) begin
        arriving <= emits_word;
        arriving_mark <= emits_mark;
        arriving_graded <= graded;
        arriving_row <= row;
        arriving_factor <= factor;
    end

    // ---- head: one event per cycle ------------------------------------------------------------------
    reg [LANES-1:0] head = 0;
    reg head_mark = 0;
    reg [ROW_BITS-1:0] head_row;
    reg signed [EVENT_BITS-1:0] head_factor;
    reg [WAIT_BITS-1:0] wait_neurons = 0;
    wire [LANES-1:0] rest = head & (head - 1'b1);
    assign passed = head_mark && wait_neurons == 0;
    assign go = head_mark ? passed : rest == 0;
    wire signed [EVENT_BITS-1:0] graded_factor =
        {{(EVENT_BITS - VALUE_BITS){value[VALUE_BITS-1]}}, value} <<< GRADED_SHIFT;
    wire signed [EVENT_BITS-1:0] spike_factor = {{(EVENT_BITS - FACTOR_BITS){1'b0}}, arriving_factor};
    localparam [LANES-1:0] ONE_EVENT = 1;
    always @(posedge clk) begin
        wait_neurons <= passed ? WAIT : wait_neurons == 0 ? 0 : wait_neurons - 1'b1;
        if (go) begin
            head <= !arriving ? 0 : arriving_graded ? ONE_EVENT : spikes;
            head_mark <= arriving_mark;
            head_row <= arriving_row;
            head_factor <= arriving_graded ? graded_factor : spike_factor;
        end else if (!head_mark) head <= rest;
    end
    integer i;
    reg [LANE_BITS-1:0] lowest;
    always @* begin
        lowest = 0;
        for (i = LANES - 1; i >= 0; i = i - 1) if (head[i]) lowest = i[LANE_BITS-1:0];
    end

    // ---- the weight memory, and the product ------------------------------------------------------------
    reg [3:0] event_at = 0;    // event_at[0]: its address is at the memory; [1]: weights arrive; [2]: registered; [3]: product
    reg [3:0] mark_at = 0;
    reg clears_sums = 0;
    reg signed [EVENT_BITS-1:0] factor_1, factor_2, factor_3;
    reg [LANES*WEIGHT_BITS-1:0] weights_3;
    always @(posedge clk) begin
        // Rows of a word are aligned, so that the number of the bit replaces the lowest bits of the address.
        weight_address <= head_row | {{(ROW_BITS - LANE_BITS){1'b0}}, lowest};
        event_at <= {event_at[2:0], head != 0};
        mark_at <= {mark_at[2:0], passed};
        if (passed) clears_sums <= clears;
        factor_1 <= head_factor;
        factor_2 <= factor_1;
        factor_3 <= factor_2;
        weights_3 <= weights;
    end
    assign drained = !arriving && !arriving_mark && head == 0 && !head_mark && wait_neurons == 0 && event_at == 0
                     && mark_at == 0;

    // ---- sums: one accumulator per lane, and a copy that the neurons read ---------------------------------
    wire [(LANES+1)*SUM_BITS-1:0] line;  // the lanes of the copy, and nothing behind the last one
    assign line[LANES*SUM_BITS +: SUM_BITS] = 0;
    assign sum = line[0 +: SUM_BITS];
    wire signed [SUM_BITS-1:0] wide_factor = {{(SUM_BITS - EVENT_BITS){factor_3[EVENT_BITS-1]}}, factor_3};
    wire cleared = mark_at[3] && clears_sums;
    genvar lane;
    generate
        for (lane = 0; lane < LANES; lane = lane + 1) begin : lanes
            wire [WEIGHT_BITS-1:0] weight = weights_3[lane*WEIGHT_BITS +: WEIGHT_BITS];
            wire signed [SUM_BITS-1:0] wide_weight = {{(SUM_BITS - WEIGHT_BITS){weight[WEIGHT_BITS-1]}}, weight};
            reg signed [SUM_BITS-1:0] product;
            reg signed [SUM_BITS-1:0] total = 0;
            reg signed [SUM_BITS-1:0] copy;
            always @(posedge clk) begin
                product <= wide_weight * wide_factor;
                if (event_at[3] || cleared) begin  // in this form, it is the accumulator of an iCE40's multiplier
                    total <= total + product;
                    if (cleared) total <= 0;
                end
                if (mark_at[3]) copy <= total;
                else if (shift) copy <= line[(lane+1)*SUM_BITS +: SUM_BITS];
            end
            assign line[lane*SUM_BITS +: SUM_BITS] = copy;
        end
    endgenerate
endmodule
