// A memory with one read port and one write port, filled from a file if one is named. What is written in a cycle is
// read from the next one on.
module mpbn_memory #(
    parameter WIDTH = 8,
    parameter DEPTH = 256,
    parameter ADDRESS_BITS = 8,
    parameter CONTENT = ""
) (
    input  wire                    clk,
    input  wire                    read,
    input  wire [ADDRESS_BITS-1:0] read_address,
    output reg  [WIDTH-1:0]        data,
    input  wire                    write,
    input  wire [ADDRESS_BITS-1:0] write_address,
    input  wire [WIDTH-1:0]        written
);
    reg [WIDTH-1:0] words [0:DEPTH-1];
    generate if (CONTENT != "") begin : filled
        initial $readmemh(CONTENT, words);
    end endgenerate
    always @(posedge clk) begin
        if (read) data <= words[read_address];
        if (write) words[write_address] <= written;
    end
endmodule
