// ULX3S (ECP5, CABGA381): 25 MHz, times three; the USB serial port at 115,200 baud.
module top (
    input  wire clk_25mhz,
    input  wire ftdi_txd,   // sent by the USB chip
    output wire ftdi_rxd,
    output wire led_busy
);
    wire clk, locked, busy, unused_select, unused_clock, unused_out;
    (* FREQUENCY_PIN_CLKI = "25", FREQUENCY_PIN_CLKOP = "75" *)
    EHXPLLL #(
        .PLLRST_ENA("DISABLED"), .INTFB_WAKE("DISABLED"), .STDBY_ENABLE("DISABLED"), .DPHASE_SOURCE("DISABLED"),
        .OUTDIVIDER_MUXA("DIVA"), .CLKOP_ENABLE("ENABLED"), .CLKOP_DIV(8), .CLKOP_CPHASE(3), .CLKOP_FPHASE(0),
        .CLKI_DIV(1), .CLKFB_DIV(3), .FEEDBK_PATH("CLKOP")
    ) pll (
        .RST(1'b0), .STDBY(1'b0), .CLKI(clk_25mhz), .CLKOP(clk), .CLKFB(clk), .CLKINTFB(), .PHASESEL0(1'b0),
        .PHASESEL1(1'b0), .PHASEDIR(1'b1), .PHASESTEP(1'b1), .PHASELOADREG(1'b1), .PLLWAKESYNC(1'b0), .ENCLKOP(1'b0),
        .LOCK(locked));
    mpbn_front #(.CLOCKS(651)) front (
        .clk(clk), .rx(ftdi_txd), .tx(ftdi_rxd), .busy(busy), .flash_select(unused_select),
        .flash_clock(unused_clock), .flash_out(unused_out), .flash_in(1'b0));
    assign led_busy = busy || !locked;
endmodule
