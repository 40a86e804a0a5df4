// UPduino 3 (iCE40 UP5K, SG48): the 12 MHz oscillator on pin 20 (solder jumper OSC), doubled; a serial adapter of 3.3 V
// at 115,200 baud on pins 23 (to the FPGA) and 25; weights in the flash memory.
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
    SB_PLL40_CORE #(
        .FEEDBACK_PATH("SIMPLE"), .DIVR(4'd0), .DIVF(7'd63), .DIVQ(3'd5), .FILTER_RANGE(3'd1)
    ) pll (.REFERENCECLK(clk_12mhz), .PLLOUTGLOBAL(clk), .LOCK(locked), .RESETB(1'b1), .BYPASS(1'b0));
    mpbn_front #(.CLOCKS(208), .FLASH(24'h020000)) front (
        .clk(clk), .rx(uart_rx), .tx(uart_tx), .busy(busy), .flash_select(flash_select), .flash_clock(flash_clock),
        .flash_out(flash_out), .flash_in(flash_in));
    assign led_busy = !(busy || !locked);
endmodule
