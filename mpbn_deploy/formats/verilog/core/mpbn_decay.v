// trunc(state * keep / 4096), rounded toward zero, two cycles after `state` was registered. `keep` belongs to the
// registered state. One addition for each bit in MASK, the bits that some `keep` has: a leak of 1/4 takes none.
module mpbn_decay #(
    parameter BITS = 24,
    parameter [12:0] MASK = 13'h1000
) (
    input  wire                   clk,
    input  wire signed [BITS-1:0] state,
    input  wire [12:0]            keep,
    output wire signed [BITS-1:0] kept
);
    localparam WIDE = BITS + 12;
    reg negative_3, negative_4, negative_5;
    reg [BITS-2:0] size_3, size_4;
    reg [5:0] high_4;
    reg [WIDE-1:0] low_4;
    reg [BITS-1:0] size_5;
    reg [WIDE-1:0] low, high;
    wire signed [BITS-1:0] minus = -state;
    integer i;
    always @* begin
        low = 0;
        for (i = 0; i < 7; i = i + 1)
            if (MASK[i]) low = low + (keep[i] ? {13'b0, size_3} << i : {WIDE{1'b0}});
        high = low_4;
        for (i = 7; i < 13; i = i + 1)
            if (MASK[i]) high = high + (high_4[i-7] ? {13'b0, size_4} << i : {WIDE{1'b0}});
    end
    always @(posedge clk) begin
        negative_3 <= state[BITS-1]; negative_4 <= negative_3; negative_5 <= negative_4;
        size_3 <= state[BITS-1] ? minus[BITS-2:0] : state[BITS-2:0];
        size_4 <= size_3;
        high_4 <= keep[12:7];
        low_4 <= low;
        size_5 <= high[WIDE-1:12];
    end
    wire unused = &{1'b0, high[11:0], minus[BITS-1]};  // the fraction, and the sign of a size
    assign kept = negative_5 ? -size_5 : size_5;
endmodule
