// Weights in the single-port RAM of an iCE40 UltraPlus: four memories of 16,384 words of 16 bits, side by side as wide
// as a row, then one behind the other.
module mpbn_spram #(
    parameter WIDTH = 64  // 16, 32 or 64
) (
    input  wire             clk,
    input  wire             write,
    input  wire [16:0]      address,
    input  wire [1:0]       part,     // of the row, 16 bits: what is written
    input  wire [15:0]      written,
    output wire [WIDTH-1:0] data
);
    localparam WIDE = WIDTH / 16, DEEP = 4 / WIDE;
    reg [1:0] bank = 0;
    always @(posedge clk) bank <= address[15:14];
    wire unused = &{1'b0, address[16], bank};
    wire [DEEP*WIDTH-1:0] found;
    wire [4*WIDTH-1:0] rows = {(4 / DEEP){found}};
    assign data = rows[bank*WIDTH +: WIDTH];
    genvar deep, wide;
    generate
        for (deep = 0; deep < DEEP; deep = deep + 1) begin : banks
            for (wide = 0; wide < WIDE; wide = wide + 1) begin : parts
                SB_SPRAM256KA ram (
                    .CLOCK(clk), .ADDRESS(address[13:0]), .DATAIN(written), .MASKWREN(4'b1111),
                    .WREN(write && part == wide[1:0] && (DEEP == 1 || address[15:14] == deep[1:0])), .CHIPSELECT(1'b1), .STANDBY(1'b0),
                    .SLEEP(1'b0), .POWEROFF(1'b1), .DATAOUT(found[WIDTH*deep + 16*wide +: 16]));
            end
        end
    endgenerate
endmodule
