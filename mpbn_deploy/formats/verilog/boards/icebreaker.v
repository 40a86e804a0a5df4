// iCEBreaker (iCE40 UP5K, SG48): 12 MHz, doubled; the USB serial port at 115,200 baud; weights in the flash memory.
module top (
    input  wire clk_12mhz,
    input  wire uart_rx,
    output wire uart_tx,
    output wire led_busy,  // active low
    output wire flash_select,
    output wire flash_clock,
    output wire flash_out,
    input  wire flash_in
);
    wire clk, busy, locked;
    SB_PLL40_PAD #(
        .FEEDBACK_PATH("SIMPLE"), .DIVR(4'd0), .DIVF(7'd63), .DIVQ(3'd5), .FILTER_RANGE(3'd1)
    ) pll (.PACKAGEPIN(clk_12mhz), .PLLOUTGLOBAL(clk), .LOCK(locked), .RESETB(1'b1), .BYPASS(1'b0));
    mpbn_front #(.CLOCKS(208), .FLASH(24'h020000)) front (
        .clk(clk), .rx(uart_rx), .tx(uart_tx), .busy(busy), .flash_select(flash_select), .flash_clock(flash_clock),
        .flash_out(flash_out), .flash_in(flash_in));
    assign led_busy = !(busy || !locked);
endmodule
