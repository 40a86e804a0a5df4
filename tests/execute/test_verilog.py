"""The Verilog core against the reference: every spike, voltage and output, in two simulators of hardware."""

import os
import pty
import subprocess
from dataclasses import replace

import numpy as np
import pytest
from networks import (
    charged,
    inputs_for,
    int_chain,
    int_loop,
    int_pooled,
    int_residual,
    int_sigma_delta,
    int_windows,
    softened,
)

from mpbn_deploy.base import MissingPackageError, NetworkError, OptionError, SimulationError
from mpbn_deploy.execute import EXECUTORS, ExecutionOptions
from mpbn_deploy.execute.outside import chosen_witnesses
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.execute.verilog import (
    Board,
    Line,
    build,
    connected,
    run_on_board as run_on_board,
    simulated_board,
)
from mpbn_deploy.fit import fit
from mpbn_deploy.formats.verilog import core_files, core_tables, find_tool, input_memory, obstacle, write_fpga
from mpbn_deploy.hardware import load_profile
from mpbn_deploy.ir import Connection, Dense, Input, IntNetwork, Lif, Population, Readout
from mpbn_deploy.verify import verify


def needs(tool):
    try:
        find_tool(tool)
    except MissingPackageError as error:
        return pytest.mark.skip(reason=str(error))
    return lambda test: test


needs_icarus, needs_verilator, needs_yosys = needs("iverilog"), needs("verilator"), needs("yosys")

KINDS = {
    "groups, per neuron": (lambda: int_chain(2, groups=2), 8, False),
    "changing inputs": (lambda: int_chain(3, per_neuron=False), 4, True),
    "residual with delays": (lambda: int_residual(2, delay=2), 16, False),
    "silent borders": (lambda: int_windows(1), 8, True),
    "loop": (lambda: int_loop(2, delays=(1, 2)), 8, False),
    "soft resets, currents, decays per neuron": (lambda: charged(softened(int_residual(6))), 8, False),
    "loop with currents": (lambda: charged(softened(int_loop(7))), 4, True),
}


def assert_equal(network, inputs, answer):
    expected = simulate(network, inputs)
    assert np.array_equal(answer.outputs, expected.outputs)
    for name, spikes in expected.spikes.items():
        assert np.array_equal(answer.spikes[name], spikes), name
        assert np.array_equal(answer.voltages[name], expected.voltages[name]), name


@needs_icarus
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_network_is_equal(kind, tmp_path):
    make, lanes, steps = KINDS[kind]
    network = make()
    inputs = inputs_for(network, 2, steps=steps)
    answer = build(network, tmp_path, "iverilog", lanes=lanes, static=not steps).run(inputs)
    assert_equal(network, inputs, answer)
    assert any(spikes.any() for spikes in answer.spikes.values())


def two_layers(exponents=(0, 0), largest=7, low=-9, bias_exponent=6, seed=0):
    """Signed inputs, weights with exponents, and a readout."""
    generator = np.random.default_rng(seed)
    weights = [generator.integers(-largest - 1, largest + 1, shape) for shape in ((11, 6), (3, 11))]
    return IntNetwork(
        populations=(
            Population(name="input", shape=(6,), neuron=Input(minimum=low, maximum=9)),
            Population(
                name="lif",
                shape=(11,),
                neuron=Lif(
                    threshold=generator.integers(-9, 60, 11),
                    bias=generator.integers(-20, 20, 11),
                    bias_exponent=bias_exponent,
                    decay_voltage=409,
                ),
            ),
            Population(name="output", shape=(3,), neuron=Readout(bias=np.zeros(3, np.int64))),
        ),
        connections=(
            Connection(source="input", target="lif", synapse=Dense(weight=weights[0], exponent=exponents[0])),
            Connection(
                source="lif", target="output", synapse=Dense(weight=weights[1], exponent=exponents[1])
            ),
        ),
        timesteps=5,
        scales={},
    )


@needs_icarus
@pytest.mark.parametrize(
    ("options", "bits"),
    [
        ({"largest": 1}, 2),
        ({"largest": 7, "exponents": (1, 3)}, 4),
        ({"largest": 127, "exponents": (-2, 0)}, 8),
        ({"largest": 127, "exponents": (0, -3), "bias_exponent": 0}, 8),
    ],
)
def test_weights_are_packed_and_keep_their_exponents(options, bits, tmp_path):
    network = two_layers(**options)
    inputs = inputs_for(network, 3)
    simulation = build(network, tmp_path, "iverilog")
    assert simulation.tables.numbers["WEIGHT_BITS"] == bits
    assert_equal(network, inputs, simulation.run(inputs))


def addresses(tables, layer, connection):
    """Yield every address of a word, and row of weights, that the schedule emits: what mpbn_scan must do."""
    c, steps = connection, tables.numbers["STEPS"]
    rewind = 1 if layer["loop"] else steps
    size = 1 if c["graded"] else tables.lanes
    at, row, corner = c["base"], c["first_row"], (c["start_y"], c["start_x"])
    for y in range(layer["height"]):
        for x in range(layer["width"]):
            for g in range(layer["groups"]):
                for t in range(steps):
                    if t >= c["delay"]:
                        here, (first_y, first_x) = at + t * c["time_step"], corner
                        place = (first_y + y * c["stride_y"], first_x + x * c["stride_x"])
                        yield from _taps(c, here, row, size, *place)
                last = g == layer["groups"] - 1
                move = "next_group" if not last else "next_column" if x < layer["width"] - 1 else "next_row"
                at += rewind * c["time_step"] + c[move]
                row = c["first_row"] if last and not c["pixelwise"] else row + c["rows"]


def _taps(c, at, row, size, y, x):
    for a in range(c["kernel_height"]):
        for b in range(c["kernel_width"]):
            tap_y, tap_x = y + a * c["dilation_y"], x + b * c["dilation_x"]
            if 0 <= tap_y < c["source_height"] and 0 <= tap_x < c["source_width"]:
                yield from ((at + n, row + n * size) for n in range(c["words"]))
            row += c["tap_rows"]
            at += c["tap_right"] if b < c["kernel_width"] - 1 else c["tap_down"]


@pytest.mark.parametrize(
    "network", [int_chain(1, groups=2), int_residual(1, delay=1), int_pooled(1), int_loop(1)]
)
def test_every_address_is_in_range(network):
    tables = core_tables(network)
    for layer in tables.layers:
        for c in tables.connections[layer["first_connection"] : layer["last_connection"] + 1]:
            words = tables.numbers["INPUTS" if c["graded"] else "SPIKE_WORDS"]
            size = 1 if c["graded"] else tables.lanes
            found = list(addresses(tables, layer, c))
            assert found
            assert all(0 <= at < words and 0 <= row <= tables.numbers["ROWS"] - size for at, row in found)


def test_networks_with_graded_messages_are_named():
    network = int_sigma_delta()
    assert "graded messages" in obstacle(network)
    with pytest.raises(NetworkError, match="graded messages"):
        core_tables(network)


def test_foreign_networks_that_cannot_overflow_are_held():
    assert obstacle(replace(int_chain(1), foreign=True)) is None


# ---- tools ----------------------------------------------------------------------------------------


def test_missing_tools_are_named_with_their_command(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    with pytest.raises(MissingPackageError, match="apt-get install verilator"):
        find_tool("verilator")
    with pytest.raises(MissingPackageError, match=r"pip install 'mpbn_deploy\[fpga\]'"):
        find_tool("yosys")


def test_verify_runs_the_core_on_request_only():
    (executor,) = chosen_witnesses(["verilator"])
    assert executor is EXECUTORS["verilator"]
    with pytest.raises(OptionError, match="verilator"):
        chosen_witnesses(["verilater"])


@needs_verilator
def test_the_core_is_a_witness_and_lints_without_warnings():
    """Verilator is run with -Wall, and its warnings are errors."""
    network = int_chain(1)
    report = verify(network, inputs_for(network, 3), budget=0, witness=["verilator"])
    (found,) = [c for c in report.comparisons if c.execution == EXECUTORS["verilator"].name]
    assert not found.not_run, found.not_run
    assert found.spikes_compared > 0 and found.spikes_mismatched + found.voltages_mismatched == 0


@needs_icarus
def test_the_folder_simulates_itself(tmp_path):
    network = int_chain(1)
    inputs = inputs_for(network, 3)
    folder = tmp_path / "fpga"
    write_fpga(folder, network, inputs, simulate(network, inputs), device="up5k", lanes=8, spram=True)
    done = subprocess.run(["make", "sim"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0 and "3 samples equal" in done.stdout, done.stderr
    assert (folder / "weights.bin").stat().st_size == 8 * core_tables(network).numbers["ROWS"]
    (folder / "expected.txt").write_text("s 1 0\n")
    assert subprocess.run(["make", "sim"], cwd=folder, capture_output=True).returncode != 0


# ---- boards ---------------------------------------------------------------------------------------


@needs_verilator
def test_a_simulated_board_answers_at_its_serial_port(tmp_path):
    network = int_chain(1)
    inputs = inputs_for(network, 2)
    expected = simulate(network, inputs)
    with simulated_board(network, tmp_path) as port:
        answer = run_on_board(network, inputs, ExecutionOptions(port=port))
        assert np.array_equal(answer.outputs, expected.outputs)
        with connected(network, port) as board:
            reply = board.classify(input_memory(network, inputs[1:], static=True)[0])
            assert reply.predicted == expected.outputs[1].argmax() and reply.cycles > 100
            for name, spikes in board.spikes().items():
                assert np.array_equal(spikes, expected.spikes[name][1])
        with pytest.raises(SimulationError, match="holds another network"), connected(int_chain(5), port):
            pass


def test_ports_that_are_missing_or_silent_end_in_one_message(tmp_path):
    network = int_chain(1)
    with pytest.raises(OptionError, match="add --port"), connected(network, None):
        pass
    with pytest.raises(OptionError, match="cannot be opened"), connected(network, str(tmp_path / "no")):
        pass
    _, silent = pty.openpty()
    line = Line(os.ttyname(silent), patience=0.05)
    with pytest.raises(SimulationError, match="no answer within"):
        Board(network, line)
    line.close()


# ---- targets --------------------------------------------------------------------------------------


def test_a_network_that_is_too_large_names_the_memory_and_what_would_do():
    wide = two_layers(largest=127)
    connections = tuple(
        replace(c, synapse=Dense(weight=np.ones((size, before), np.int64)))
        for c, size, before in zip(wide.connections, (6000, 3), (6, 6000), strict=True)
    )
    lif = Lif(threshold=np.ones(6000, np.int64), bias=np.arange(6000) % 4000, decay_voltage=3072)
    populations = (
        wide.populations[0],
        Population(name="lif", shape=(6000,), neuron=lif),
        wide.populations[2],
    )
    network = replace(wide, populations=populations, connections=connections)
    report = fit(network, load_profile("ice40-up5k"))
    assert report.fits is False
    (found,) = report.found("error")
    assert "blocks of RAM" in found.message and "ecp5-85k" in found.message and "parameters" in found.message
    assert fit(network, load_profile("ecp5-85k")).fits is True


def test_a_small_network_fits_and_says_what_it_takes():
    report = fit(int_chain(1), load_profile("ice40-up5k"))
    assert report.fits is True and report.cores == 1
    assert report.fabric.single_port_bytes > 0 and "logic cells" in report.fabric.line
    assert report.to_json()["fabric"]["power"] is None


def test_files_are_plain_ascii_and_complete():
    names = set(core_files())
    assert {"mpbn_core.v", "mpbn_front.v", "bench.v", "icebreaker.pcf", "ulx3s.lpf"} <= names


# ---- formal ---------------------------------------------------------------------------------------

DECAY = """
module check(input clk, input signed [4:0] state, input [12:0] keep);
    wire signed [4:0] kept;
    mpbn_decay #(.BITS(5), .MASK(13'h1fff)) decay (.clk(clk), .state(state), .keep(keep_1), .kept(kept));
    reg [12:0] keep_1;
    reg signed [4:0] state_1, state_2, state_3;
    reg [12:0] keep_2, keep_3;
    reg [2:0] age = 0;
    always @(posedge clk) begin
        keep_1 <= keep; keep_2 <= keep_1; keep_3 <= keep_2;
        state_1 <= state; state_2 <= state_1; state_3 <= state_2;
        if (age != 7) age <= age + 1;
    end
    wire signed [18:0] product = state_3 * $signed({1'b0, keep_3});
    wire signed [18:0] expected = product / 4096;  // Verilog's division rounds toward zero
    always @* if (age > 3 && keep_3 <= 4096) assert (kept == expected[4:0]);
endmodule
"""


SCAN = {"LANES": 2, "COUNT_BITS": 2, "ADDRESS_BITS": 4, "ROW_BITS": 6, "CURSORS": 2, "CONNECTIONS": 2}
NEURON = {
    "LANES": 2,
    "STATE_BITS": 12,
    "SUM_BITS": 5,
    "BIAS_BITS": 5,
    "BIAS_SHIFT": 4,
    "THRESHOLD_BITS": 7,
    "SUBTRAHEND_BITS": 5,
    "PARAMETER_WIDTH": 17,
    "PARAMETER_BITS": 2,
    "STATE_ADDRESS_BITS": 1,
    "SOFT": 1,
    "SCORE_BITS": 2,
    "ADDRESS_BITS": 3,
    "CURRENTS": 1,
    "VOLTAGE_MASK": 5120,
    "CURRENT_MASK": 5120,
    "VOLTAGE_ONE_HOT": 1,
    "CURRENT_ONE_HOT": 1,
}
# what is proved; parameters; how; and a change of the core that must make the proof fail
PROOFS = {
    # rounds toward zero, for all 5-bit states and all 4097 fractions
    "decay": ("check", {}, "-seq 6", ("{12{state_4[BITS-1]}}", "{12{1'b0}}")),
    # the update, for all states, sums and parameters of these widths that fit their state
    "neuron": ("mpbn_neuron", NEURON, "-tempinduct -maxsteps 6", ("> limit_7;", ">= limit_7;")),
    # every position and row of weights, for all networks of numbers below four: none out of range
    "scan": ("mpbn_scan", SCAN, "-tempinduct -maxsteps 2", ("!in_range ? tap_rows : graded", "graded")),
}


@needs_yosys
@pytest.mark.parametrize("broken", [False, True], ids=["as written", "with a fault"])
@pytest.mark.parametrize("name", PROOFS)
def test_the_core_is_proved_by_a_sat_solver(name, broken, tmp_path):
    top, parameters, how, (right, wrong) = PROOFS[name]
    text = core_files()[f"mpbn_{name}.v"]
    assert right in text
    files = {
        **core_files(),
        "check.v": DECAY,
        f"mpbn_{name}.v": text.replace(right, wrong) if broken else text,
    }
    read = (
        ["mpbn_scan.v"] if name == "scan" else ["mpbn_neuron.v", "mpbn_decay.v", "mpbn_memory.v", "check.v"]
    )
    for each in read:
        (tmp_path / each).write_text(files[each])
    given = " ".join(f"-chparam {key} {value}" for key, value in parameters.items())
    lower = "proc; flatten; memory_collect; memory_map -formal; async2sync; chformal -lower; opt_clean"
    script = f"read_verilog -formal {' '.join(read)}; hierarchy -top {top} {given}; {lower}"
    script += f"; sat -verify {how} -prove-asserts -set-assumes"
    command = [find_tool("yosys"), "-q", "-p", script]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert ("proof did fail" in done.stderr) == broken and (done.returncode == 0) != broken, done.stderr
