// A memory with one read port and one write port, filled from a file if one is named.
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
        if (write) words[write_address] <= written;
        if (read) begin
            data <= words[read_address];
            // Block RAM promises nothing for a word that is read while it is written; nothing here needs it.
            if (write && read_address == write_address) data <= {WIDTH{1'bx}};
        end
    end
endmodule
