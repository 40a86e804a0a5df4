// OrangeCrab r0.2 (ECP5-25F or -85F, CSFBGA285): 48 MHz; a serial adapter of 3.3 V at 115,200 baud on the pins marked
// 0 (to the FPGA) and 1.
module top (
    input  wire clk_48mhz,
    input  wire uart_rx,
    output wire uart_tx,
    output wire led_busy   // active low
);
    wire busy, unused_select, unused_clock, unused_out;
    mpbn_front #(.CLOCKS(417)) front (
        .clk(clk_48mhz), .rx(uart_rx), .tx(uart_tx), .busy(busy), .flash_select(unused_select),
        .flash_clock(unused_clock), .flash_out(unused_out), .flash_in(1'b0));
    assign led_busy = !busy;
endmodule
