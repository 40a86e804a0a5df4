// trunc(state * keep / 4096), rounded toward zero: floor((state * keep + (state < 0 ? 4095 : 0)) / 4096), three cycles
// after `state`; `keep` is given one cycle after it. One addition for each bit in MASK, the bits that some `keep` has,
// or none if no `keep` has more than one (ONE_HOT): a leak of 1/4 is a shift.
module mpbn_decay #(
    parameter BITS = 24,
    parameter [12:0] MASK = 13'h1000,
    parameter ONE_HOT = 0
) (
    input  wire                   clk,
    input  wire signed [BITS-1:0] state,
    input  wire [12:0]            keep,
    output reg  signed [BITS-1:0] kept
);
    localparam WIDE = BITS + 13;
    reg signed [BITS-1:0] state_3, state_4;
    reg [5:0] high_4;
    reg signed [WIDE-1:0] low_4, low, high, rounded;
    integer i;
    // The partial products of the lower bits in one cycle, those of the higher bits in the next.
    always @* begin
        low = 0;
        for (i = 0; i < 7; i = i + 1) if (MASK[i]) low = joined(low, keep[i] ? shifted(state_3, i) : {WIDE{1'b0}});
        high = low_4;
        for (i = 7; i < 13; i = i + 1) if (MASK[i]) high = joined(high, high_4[i-7] ? shifted(state_4, i) : {WIDE{1'b0}});
        rounded = high + {{(WIDE - 12){1'b0}}, {12{state_4[BITS-1]}}};
    end
    always @(posedge clk) begin
        state_3 <= state;
        state_4 <= state_3;
        high_4 <= keep[12:7];
        low_4 <= low;
        kept <= rounded[12 +: BITS];
    end
    wire unused = &{1'b0, rounded[11:0], rounded[WIDE-1]};  // the fraction, and a second sign

    function signed [WIDE-1:0] shifted(input signed [BITS-1:0] value, input integer places);
        shifted = {{13{value[BITS-1]}}, value} <<< places;
    endfunction
    function signed [WIDE-1:0] joined(input signed [WIDE-1:0] sum, input signed [WIDE-1:0] part);
        joined = ONE_HOT != 0 ? sum | part : sum + part;
    endfunction
endmodule
