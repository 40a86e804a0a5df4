// A board in simulation: the serial front of the core, its line connected to a pseudo-terminal.  board CLOCKS
// Prints the terminal's name, and ends when standard input closes.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include "Vmpbn_front.h"
#include "verilated.h"

static Vmpbn_front board;

static void tick() {
    board.clk = 0;
    board.eval();
    board.clk = 1;
    board.eval();
}

int main(int count, char **words) {
    const int clocks = count > 1 ? atoi(words[1]) : 16, line = posix_openpt(O_RDWR | O_NOCTTY);
    if (line < 0 || grantpt(line) || unlockpt(line)) return 1;
    const int kept = open(ptsname(line), O_RDWR | O_NOCTTY);  // so that reading never ends
    termios raw;
    tcgetattr(kept, &raw);
    cfmakeraw(&raw);
    tcsetattr(kept, TCSANOW, &raw);
    puts(ptsname(line));
    fflush(stdout);
    int sending = 0, wait = 0, received = -1, phase = 0;  // bits to the front, and from it
    uint32_t out = 1, in = 0;
    for (uint64_t cycle = 0;; ++cycle) {
        if (!sending && (cycle & 63) == 0) {
            pollfd ready[2] = {{line, POLLIN, 0}, {0, POLLIN, 0}};
            const bool idle = !board.busy && received < 0;
            if (poll(ready, 2, idle ? 10 : 0) < 0) return 1;
            uint8_t byte;
            if (ready[1].revents && read(0, &byte, 1) <= 0) return 0;
            if ((ready[0].revents & POLLIN) && read(line, &byte, 1) == 1) {
                out = (uint32_t)byte << 1 | 0x200;
                sending = 11;
                wait = 0;
            }
        }
        board.rx = sending ? out & 1 : 1;
        if (sending && ++wait == clocks) {
            wait = 0;
            out = out >> 1 | 0x200;  // stop bits
            --sending;
        }
        tick();
        if (received < 0) {
            if (!board.tx) { received = 0; phase = clocks + clocks / 2; in = 0; }
        } else if (--phase == 0) {
            phase = clocks;
            if (received < 8) in |= (uint32_t)board.tx << received;
            if (++received == 9) {
                const uint8_t byte = (uint8_t)in;
                if (write(line, &byte, 1) != 1) return 1;
                received = -1;
            }
        }
    }
}
