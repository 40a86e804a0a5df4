// The schedule: walks through the layers of a network and emits what the events stage consumes, in order.
//
//     for each layer                                  (a loop of layers: for each step, for each layer)
//       for each target pixel (y, x), each group g of LANES channels
//         for each time step t                        (in a loop of layers: one step)
//           for each connection, each tap (a, b) of its kernel within the source, each word n of channels
//             emit the address of a word of spikes, or of one input value, and the row of its first weight
//           emit a mark: the sums of LANES neurons are complete
//
// Nothing is multiplied: every address is a running sum whose increments the generator has computed. A connection's
// position in its source is a `cursor`, kept while other connections of the same layer are scanned.
module mpbn_scan #(
    parameter LANES = 8,
    parameter STEPS = 4,         // time steps of a sample
    parameter LAYERS = 1,
    parameter CONNECTIONS = 1,
    parameter CURSORS = 1,       // connections into one layer, at most
    parameter BORDERS = 0,       // 1: some connection leaves a border of its target silent
    parameter LAYER_BITS = 1,    // of the number of a layer
    parameter CONNECTION_BITS = 1,
    parameter COUNT_BITS = 4,    // of heights, widths, channels and positions, with a sign
    parameter STEP_BITS = 3,
    parameter ADDRESS_BITS = 8,  // of spikes and inputs
    parameter ROW_BITS = 8,      // of rows of weights
    parameter PARAMETER_BITS = 8,// of addresses of neuron parameters
    parameter PLACE_BITS = 4,    // of addresses of `places.hex`
    parameter PLACES = 2,
    parameter STATE_ADDRESS_BITS = 3,
    parameter FACTOR_BITS = 2    // of the factor of a spike
) (
    input  wire                          clk,
    input  wire                          start,
    output wire                          busy,
    input  wire                          go,          // what is emitted is taken
    input  wire                          passed,      // a mark reached the neurons
    input  wire                          drained,     // nothing is on its way to a memory
    output wire                          emits_word,
    output wire                          emits_mark,
    output wire                          graded,      // the word is one input value
    output wire [ADDRESS_BITS-1:0]       address,
    output reg  [ROW_BITS-1:0]           row,
    output wire [FACTOR_BITS-1:0]        factor,
    // of the layer, for the neurons; stable until they are drained
    output wire                          fires,
    output wire                          subtracts,
    output wire [12:0]                   keep_voltage,
    output wire [12:0]                   keep_current,
    output wire                          is_output,
    // of the next mark that passes
    output wire                          first_step,
    output wire                          clears,      // no later step needs the same sums
    output wire [ADDRESS_BITS-1:0]       store_address,
    output reg  [PARAMETER_BITS-1:0]     parameter_address,
    output reg  [STATE_ADDRESS_BITS-1:0] state_address,
    output reg  [ADDRESS_BITS-1:0]       place        // words of spikes before this one, in a step
);
    localparam [3:0] IDLE = 0, LOAD = 1, SEEK = 2, ROW = 3, COLUMN = 4, PLACE = 5, BEGIN = 6, SCAN = 7,
                     MARK = 8, NEXT = 9, MOVE = 10, DRAIN = 11;
    localparam LAYER_WIDTH = 5 + 2 * 13 + 3 * COUNT_BITS + 2 * CONNECTION_BITS + LAYER_BITS + PARAMETER_BITS
                             + 2 * PLACE_BITS + 2 * ADDRESS_BITS + STATE_ADDRESS_BITS;
    localparam CONNECTION_WIDTH = 2 + FACTOR_BITS + STEP_BITS + 15 * COUNT_BITS + 7 * ADDRESS_BITS + 3 * ROW_BITS;
    localparam CURSOR_BITS = CURSORS > 1 ? $clog2(CURSORS) : 1;
    localparam [STEP_BITS-1:0] LAST_STEP = STEPS[STEP_BITS-1:0] - 1;
    localparam [ROW_BITS-1:0] ONE_ROW = 1, LANE_ROWS = LANES[ROW_BITS-1:0];
    localparam [LAYER_BITS-1:0] LAST_LAYER = LAYERS[LAYER_BITS-1:0] - 1;

    reg [3:0] state = IDLE;
    assign busy = state != IDLE;

    // ---- the network, as data: one word per layer, one word per connection ----------------------
    reg [LAYER_WIDTH-1:0] layers [0:LAYERS-1];
    reg [CONNECTION_WIDTH-1:0] connections [0:CONNECTIONS-1];
`ifndef FORMAL
    initial $readmemh("layers.hex", layers);
    initial $readmemh("connections.hex", connections);
`endif
    reg [LAYER_BITS-1:0] layer = 0;
    reg [CONNECTION_BITS-1:0] connection = 0;

    wire loop, loop_ends, holds;
    wire [COUNT_BITS-1:0] height, width, groups;
    wire [CONNECTION_BITS-1:0] first_connection, last_connection;
    wire [LAYER_BITS-1:0] loop_start;
    wire [PARAMETER_BITS-1:0] first_parameter;
    wire [PLACE_BITS-1:0] first_row_place, first_column_place;
    wire [ADDRESS_BITS-1:0] first_store, store_step;
    wire [STATE_ADDRESS_BITS-1:0] first_state;
    assign {loop, loop_ends, holds, fires, subtracts, keep_current, keep_voltage, height, width, groups,
            first_connection, last_connection, loop_start, first_parameter, first_row_place, first_column_place,
            first_store, store_step, first_state} = layers[layer];

    wire pixelwise;  // every target pixel has weights of its own: a matrix onto maps
    wire [STEP_BITS-1:0] delay;
    wire [COUNT_BITS-1:0] kernel_height, kernel_width, source_height, source_width, start_y, start_x, stride_y,
                          stride_x, dilation_y, dilation_x, words, top, bottom, left, right;
    wire [ADDRESS_BITS-1:0] base, time_step, tap_right, tap_down, next_group, next_column, next_row;
    wire [ROW_BITS-1:0] first_row, rows, tap_rows;
    assign {graded, pixelwise, factor, delay, kernel_height, kernel_width, source_height, source_width, start_y,
            start_x, stride_y, stride_x, dilation_y, dilation_x, words, top, bottom, left, right, base, time_step,
            tap_right, tap_down, next_group, next_column, next_row, first_row, rows, tap_rows}
            = connections[connection];

    // ---- counters ---------------------------------------------------------------------------------
    reg [COUNT_BITS-1:0] y, x, g, a, b, n;
    reg [STEP_BITS-1:0] t, seek;
    wire last_in_layer = connection == last_connection;
    wire last_group = g + 1'b1 == groups, last_column = x + 1'b1 == width, last_row = y + 1'b1 == height;
    wire last_word = n + 1'b1 == words, last_b = b + 1'b1 == kernel_width, last_a = a + 1'b1 == kernel_height;
    assign is_output = layer == LAST_LAYER;

    // ---- cursors: where the kernel's corner is in the source, and its row of weights ----------------
    reg [CURSOR_BITS-1:0] cursor = 0;
    wire [CURSOR_BITS-1:0] next_cursor = CURSORS == 1 || last_in_layer ? 0 : cursor + 1'b1;
    reg [ADDRESS_BITS-1:0] cursor_address [0:CURSORS-1];
    reg [COUNT_BITS-1:0] cursor_y [0:CURSORS-1];
    reg [COUNT_BITS-1:0] cursor_x [0:CURSORS-1];
    reg [ROW_BITS-1:0] cursor_row [0:CURSORS-1];
    wire [ADDRESS_BITS-1:0] at_address = cursor_address[cursor];
    wire [COUNT_BITS-1:0] at_y = cursor_y[cursor], at_x = cursor_x[cursor];
    wire [ROW_BITS-1:0] at_row = cursor_row[cursor];
    wire [ADDRESS_BITS-1:0] moved = last_group ? (last_column ? next_row : next_column) : next_group;
    wire first_visit = state == LOAD || state == SEEK;
    wire fresh = state == SEEK && seek == 0;  // the first cycle of SEEK sets a cursor
    wire sets = state == NEXT || state == BEGIN || state == SEEK;
    always @(posedge clk) if (sets) begin
        cursor_address[cursor] <= fresh ? base : at_address + (state == NEXT ? moved : time_step);
        if (state != BEGIN && (fresh || !first_visit)) begin
            cursor_y[cursor] <= fresh ? start_y : last_group && last_column ? at_y + stride_y : at_y;
            cursor_x[cursor] <= fresh || (last_group && last_column) ? start_x : last_group ? at_x + stride_x : at_x;
            cursor_row[cursor] <= fresh || (last_group && !pixelwise) ? first_row : at_row + rows;
        end
    end
    wire sought = seek == (loop ? t : {STEP_BITS{1'b0}});

    // ---- taps ---------------------------------------------------------------------------------------
    reg [COUNT_BITS-1:0] tap_y, tap_x;  // negative positions are large: one comparison finds both ends
    reg [ADDRESS_BITS-1:0] tap_address;
    wire in_range = tap_y < source_height && tap_x < source_width;
    wire silent = BORDERS != 0 && (y < top || y >= bottom || x < left || x >= right);
    wire skipped = t < delay || silent || (holds && t != 0);
    assign emits_word = state == SCAN && in_range;
    assign emits_mark = state == MARK;
    assign address = tap_address + {{(ADDRESS_BITS - COUNT_BITS){1'b0}}, n};
    wire steps_on = state == SCAN && (go || !in_range);
    wire tap_ends = !in_range || last_word;
    wire scan_ends = tap_ends && last_b && last_a;
    always @(posedge clk)
        if (state == BEGIN) begin
            a <= 0; b <= 0; n <= 0;
            tap_y <= at_y; tap_x <= at_x; tap_address <= at_address; row <= at_row;
        end else if (steps_on) begin
            row <= row + (!in_range ? tap_rows : graded ? ONE_ROW : LANE_ROWS);
            n <= tap_ends ? 0 : n + 1'b1;
            if (tap_ends) begin
                b <= last_b ? 0 : b + 1'b1;
                tap_x <= last_b ? at_x : tap_x + dilation_x;
                tap_address <= tap_address + (last_b ? tap_down : tap_right);
                if (last_b) begin a <= a + 1'b1; tap_y <= tap_y + dilation_y; end
            end
        end

    // ---- the place of a neuron's parameters: an offset of its row and one of its column --------------
    reg [PARAMETER_BITS-1:0] places [0:PLACES-1];
`ifndef FORMAL
    initial $readmemh("places.hex", places);
`endif
    reg [PARAMETER_BITS-1:0] offset;
    reg [PLACE_BITS-1:0] row_place, column_place;
    always @(posedge clk) offset <= places[state == ROW ? row_place : column_place];

    // ---- what marks carry: they pass later than they are emitted, so these counters follow behind -----
    reg [1:0] pending = 0;
    reg [STEP_BITS-1:0] passing = 0;  // the time step of the next mark that passes
    reg [ADDRESS_BITS-1:0] step_store;
    assign first_step = loop ? t == 0 : passing == 0;
    assign clears = !holds || passing == LAST_STEP;
    assign store_address = step_store + place;
    always @(posedge clk) begin
        pending <= pending + {1'b0, emits_mark && go} - {1'b0, passed};
        if (state == LOAD) begin passing <= 0; step_store <= first_store; end
        else if (passed && !loop) begin
            passing <= passing == LAST_STEP ? 0 : passing + 1'b1;
            step_store <= passing == LAST_STEP ? first_store : step_store + store_step;
        end else if (state == SEEK && cursor == 0 && !sought) step_store <= step_store + store_step;
    end

    // ---- the sequence ---------------------------------------------------------------------------------
    always @(posedge clk) case (state)
        IDLE: if (start) begin layer <= 0; t <= 0; state <= LOAD; end
        LOAD: begin
            y <= 0; x <= 0; g <= 0; place <= 0; seek <= 0; cursor <= 0;
            row_place <= first_row_place; column_place <= first_column_place;
            connection <= first_connection; state_address <= first_state; state <= SEEK;
        end
        SEEK: if (!sought) seek <= seek + 1'b1;
            else begin
                seek <= 0;
                connection <= last_in_layer ? first_connection : connection + 1'b1;
                cursor <= next_cursor;
                if (last_in_layer) state <= ROW;
            end
        ROW: state <= COLUMN;
        COLUMN: begin parameter_address <= first_parameter + offset; state <= PLACE; end
        PLACE: begin parameter_address <= parameter_address + offset; state <= BEGIN; end
        BEGIN: if (skipped) finish_connection; else state <= SCAN;
        SCAN: if (steps_on && scan_ends) finish_connection;
        MARK: if (go) begin
            if (!loop) t <= t == LAST_STEP ? 0 : t + 1'b1;
            state <= loop || t == LAST_STEP ? NEXT : BEGIN;
        end
        NEXT: begin
            connection <= last_in_layer ? first_connection : connection + 1'b1;
            cursor <= next_cursor;
            if (last_in_layer) state <= MOVE;
        end
        MOVE: if (pending == 0) begin
            place <= place + 1'b1;
            parameter_address <= parameter_address + LANES[PARAMETER_BITS-1:0];
            if (loop) state_address <= state_address + LANES[STATE_ADDRESS_BITS-1:0];
            g <= last_group ? 0 : g + 1'b1;
            if (last_group) begin
                x <= last_column ? 0 : x + 1'b1;
                column_place <= last_column ? first_column_place : column_place + 1'b1;
                if (last_column) begin y <= y + 1'b1; row_place <= row_place + 1'b1; end
            end
            state <= !last_group ? BEGIN : last_column && last_row ? DRAIN : ROW;
        end
        DRAIN: if (drained) begin
            if (loop && loop_ends && t != LAST_STEP) begin layer <= loop_start; t <= t + 1'b1; state <= LOAD; end
            else begin
                if (loop_ends) t <= 0;
                layer <= is_output ? 0 : layer + 1'b1;
                state <= is_output ? IDLE : LOAD;
            end
        end
        default: state <= IDLE;
    endcase

    task finish_connection;
        begin
            connection <= last_in_layer ? first_connection : connection + 1'b1;
            cursor <= next_cursor;
            state <= last_in_layer ? MARK : BEGIN;
        end
    endtask

`ifdef FORMAL
    // What the running sums stand for, proved by induction for every network of small numbers (tests/execute/test_verilog.py).
    wire [ROW_BITS-1:0] row_step = graded ? ONE_ROW : LANE_ROWS, row_now = at_row + rows_before[ROW_BITS-1:0];
    wire [31:0] rows_before = (a * kernel_width + b) * tap_rows + n * row_step;
    wire [31:0] rows_of_tap = words * row_step, rows_of_kernel = kernel_height * kernel_width * tap_rows;
    always @* if (state == SCAN) begin
        assume (kernel_height != 0 && kernel_width != 0 && words != 0);  // as the generator writes them
        assume (tap_rows == rows_of_tap && rows == rows_of_kernel);
        assert (a < kernel_height && b < kernel_width && n < words);
        assert (tap_y == at_y + a * dilation_y);
        assert (tap_x == at_x + b * dilation_x);
        assert (tap_address == at_address - time_step  // the cursor is at the next time step already
                               + a * ((kernel_width - 1'b1) * tap_right + tap_down) + b * tap_right);
        assert (row == row_now);
        assert (rows_before < rows);  // the weights of this kernel, and no others
    end
`endif
endmodule
