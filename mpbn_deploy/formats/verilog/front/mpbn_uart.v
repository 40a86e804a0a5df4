// A serial port, 8N1: bytes in and out at one bit per CLOCKS cycles.
module mpbn_uart #(
    parameter CLOCKS = 16
) (
    input  wire       clk,
    input  wire       rx,
    output reg        received = 0,  // for one cycle
    output reg  [7:0] byte_in = 0,
    input  wire       send,          // taken while not sending
    input  wire [7:0] byte_out,
    output wire       sending,
    output wire       tx
);
    localparam BITS = $clog2(CLOCKS + 1);
    localparam [BITS-1:0] LAST = CLOCKS[BITS-1:0] - 1'b1, MIDDLE = LAST >> 1;

    // ---- receive: from the falling edge of the start bit, sample in the middle of each bit ----------
    reg [2:0] line = 3'b111;  // two registers against metastability
    reg [BITS-1:0] rx_clock = 0;
    reg [3:0] rx_bit = 0;     // 0: idle, 1: start bit, 2 to 9: data, 10: stop bit
    always @(posedge clk) begin
        line <= {line[1:0], rx};
        received <= 0;
        if (rx_bit == 0) begin
            rx_clock <= 0;
            if (!line[2]) rx_bit <= 1;
        end else begin
            rx_clock <= rx_clock == LAST ? 0 : rx_clock + 1'b1;
            if (rx_clock == MIDDLE) begin
                if (rx_bit > 1 && rx_bit < 10) byte_in <= {line[2], byte_in[7:1]};
                received <= rx_bit == 10 && line[2];
                rx_bit <= rx_bit == 10 || (rx_bit == 1 && line[2]) ? 0 : rx_bit + 1'b1;
            end
        end
    end

    // ---- send: a start bit, eight data bits, a stop bit -------------------------------------------------
    reg [9:0] word = 10'h3ff;
    reg [BITS-1:0] tx_clock = 0;
    reg [3:0] tx_left = 0;
    assign sending = tx_left != 0;
    assign tx = word[0];
    always @(posedge clk)
        if (!sending) begin
            tx_clock <= 0;
            if (send) begin word <= {1'b1, byte_out, 1'b0}; tx_left <= 10; end
        end else begin
            tx_clock <= tx_clock == LAST ? 0 : tx_clock + 1'b1;
            if (tx_clock == LAST) begin word <= {1'b1, word[9:1]}; tx_left <= tx_left - 1'b1; end
        end
endmodule
