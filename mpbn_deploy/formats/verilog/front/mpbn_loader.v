// Copies the weights from the board's flash memory, once after the start: releases it from sleep (0xAB), waits, and
// reads (0x03) from address FLASH. A row is WIDTH / 8 bytes, the first lane first.
module mpbn_loader #(
    parameter WIDTH = 64,
    parameter ROWS = 1024,
    parameter ADDRESS_BITS = 10,
    parameter [23:0] FLASH = 24'h0
) (
    input  wire                    clk,
    output wire                    done,
    output reg                     write = 0,
    output reg  [ADDRESS_BITS-1:0] address = 0,
    output reg  [1:0]              part = 0,  // of a row: 16 bits
    output reg  [15:0]             data = 0,
    output reg                     flash_select = 1,
    output reg                     flash_clock = 0,
    output wire                    flash_out,
    input  wire                    flash_in
);
    localparam [2:0] START = 0, WAKE = 1, PAUSE = 2, COMMAND = 3, ROW = 4, DONE = 5;
    localparam BIT_BITS = 5;
    localparam [ADDRESS_BITS-1:0] LAST_ROW = ROWS[ADDRESS_BITS-1:0] - 1'b1;
    localparam [BIT_BITS-1:0] LAST_BIT = 15, LAST_COMMAND = 31, LAST_WAKE = 7;
    localparam PARTS = WIDTH / 16;
    localparam [1:0] LAST_PART = PARTS[1:0] - 1'b1;
    reg [2:0] state = START;
    reg [11:0] pause = 0;
    reg [BIT_BITS-1:0] bits = 0;
    reg [6:0] byte_in = 0;
    wire [31:0] command = state == WAKE ? 32'hAB000000 : {8'h03, FLASH};
    assign flash_out = command[~bits];  // the memory listens to commands only
    assign done = state == DONE;
    wire falls = flash_clock;  // the second half of a bit: the flash memory sees an edge in its middle
    wire [7:0] next_byte = {byte_in, flash_in};
    always @(posedge clk) begin
        write <= 0;
        if (write) begin
            part <= part == LAST_PART ? 0 : part + 1'b1;
            if (part == LAST_PART) address <= address + 1'b1;
        end
        case (state)
            START, PAUSE: begin
                pause <= pause + 1'b1;
                if (&pause) begin
                    flash_select <= 0;
                    bits <= 0;
                    state <= state == START ? WAKE : COMMAND;
                end
            end
            WAKE, COMMAND, ROW: begin
                flash_clock <= !flash_clock;
                if (falls) begin
                    bits <= bits + 1'b1;
                    if (state == WAKE && bits == LAST_WAKE) begin flash_select <= 1; state <= PAUSE; end
                    if (state == COMMAND && bits == LAST_COMMAND) begin bits <= 0; state <= ROW; end
                    if (state == ROW && bits == LAST_BIT) begin
                        bits <= 0;
                        write <= 1;
                        if (address == LAST_ROW && part == LAST_PART) begin flash_select <= 1; state <= DONE; end
                    end
                end else if (state == ROW) begin
                    byte_in <= next_byte[6:0];
                    if (bits[2:0] == 7) data <= {next_byte, data[15:8]};
                end
            end
            default: ;
        endcase
    end
endmodule
