"""Every block of Python on the pages is run: here, or by the test that RUN_ELSEWHERE names."""

import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import numpy as np
import torch
from networks import inputs_for, int_chain, needs_lava
from torch import nn

from mpbn_deploy.__main__ import console_script
from mpbn_deploy.api import LIF, SpikingNetwork, emulate, load_profile, open_folder, trace
from mpbn_deploy.formats.netx import write_netx
from mpbn_deploy.ir import Connection, Dense, Input, InputFormat, IntNetwork, Lif, Population
from mpbn_deploy.report.summary import lava_lines

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES += [ROOT / "hw_profiles" / "README.md", *sorted((ROOT / "examples").glob("**/README.md"))]
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```", re.DOTALL | re.MULTILINE)
RUN_HERE = {  # page: a part of each block
    "README.md": ["mpbn_deploy.export(net.eval()"],
    "energy.md": ["core_loads"],
    "folding.md": ["converters="],
    "formats.md": ["card=ModelCard", "load_netx"],
    "limits.md": ["net_config="],
    "running.md": ["LavaSession"],
}
RUN_ELSEWHERE = {
    "bring-your-own.md": "tests/examples/test_bring_your_own.py",
    "tutorial.md": "tests/examples/test_bring_your_own.py",
    "folding.md": "tests/frontend/test_foreign.py",
    "formats.md": "tests/formats/test_nir_readers.py",  # and test_netx.py
    "training.md": "tests/examples/test_examples.py",  # checkpoints of the paper: tests/checkpoint
    "running.md": "tests/execute/test_cluster.py",  # which starts workers anyway
}


def blocks(page, kind="python"):
    return [text for found, text in BLOCK.findall(page.read_text(encoding="utf-8")) if found == kind]


def block(name, part):
    """Return the block of a page that contains a part."""
    (found,) = [text for page in PAGES if page.name == name for text in blocks(page) if part in text]
    return found


def run(name, part, **names):
    """Execute a block with the names that its page assumes, and return all names after it."""
    exec(compile(block(name, part), name, "exec"), names)
    return names


def test_every_block_has_a_test():
    for page in PAGES:
        left = [
            text for text in blocks(page) if not any(part in text for part in RUN_HERE.get(page.name, ()))
        ]
        if left:
            assert page.name in RUN_ELSEWHERE, f"{page.name}: {left[0]}"
            test = (ROOT / RUN_ELSEWHERE[page.name]).read_text(encoding="utf-8")
            assert page.name in test or "connected(" in test, page.name


def test_the_readme_in_python(capsys, tmp_path, monkeypatch):
    """It is the first of the examples, and what it prints begins as on the page."""
    monkeypatch.chdir(tmp_path)
    run("README.md", "mpbn_deploy.export(net.eval()")
    first, *rows = capsys.readouterr().out.splitlines()
    assert first.startswith("yellow: Sequential on Intel Loihi 2: bit-exact to ") and len(rows) <= 11
    assert float(next(row for row in rows if row.startswith("accuracy")).split("integer ")[1][:5]) > 90
    example = (ROOT / "examples" / "ten_lines.py").read_text(encoding="utf-8")
    lines = [line for line in block("README.md", "mpbn_deploy.export(net.eval()").splitlines() if line]
    assert [line for line in lines if line not in example.splitlines()] == []


def test_energy_from_python(capsys):
    network = int_chain()
    cores = [[(population.name, (slice(None),))] for population in network.layers]
    inputs, profile = inputs_for(network), load_profile("loihi2")
    names = run("energy.md", "core_loads", network=network, inputs=inputs, profile=profile, cores=cores)
    assert names["report"].to_json()["energy_per_sample"] and "synaptic operations" in capsys.readouterr().out


class MyNeuron(nn.Module):
    def forward(self, currents):
        return (currents > 1).to(currents.dtype)


def test_a_converter_of_yours():
    given = InputFormat(shape=(4,), minimum=0, maximum=1, mean=[0.0], deviation=[1.0])
    body = nn.Sequential(nn.Linear(4, 3), MyNeuron(), nn.Linear(3, 2))
    network = SpikingNetwork(body, timesteps=2, input_format=given)
    run("folding.md", "converters=", trace=trace, network=network, MyNeuron=MyNeuron)


def test_a_checkpoint_of_yours(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    body = nn.Sequential(nn.Linear(64, 32), LIF(32), nn.Linear(32, 10))
    run("formats.md", "card=ModelCard", body=body)
    saved = torch.load(tmp_path / "model.pt", weights_only=True)
    assert saved["architecture"] == "mine.networks:build"


@needs_lava
def test_the_loaders_of_lava_dl(export_folder, monkeypatch):
    monkeypatch.chdir(export_folder)
    names = run("formats.md", "load_netx", timesteps=open_folder(export_folder).network.timesteps)
    monkeypatch.chdir(export_folder.parent)
    again = run("limits.md", "net_config=")
    assert len(again["network"].layers) == len(names["network"].layers) > 2


@needs_lava
def test_a_session_in_lava(export_folder, capsys):
    network = open_folder(export_folder).network
    inputs = inputs_for(network, samples=2)
    names = run("running.md", "LavaSession", network=network, inputs=inputs, batches=[inputs])
    expected = emulate(network, inputs).predictions
    np.testing.assert_array_equal(names["trace"].predictions, expected)
    assert capsys.readouterr().out == f"{expected}\n"


@needs_lava
def test_what_the_report_says_about_lava_dl(export_folder, tmp_path):
    """The lines below "Run it in Lava", as they stand in report.html, print the reference's output."""
    page = (export_folder / "report.html").read_text(encoding="utf-8")
    code = unescape(re.search(r"<pre>(import numpy.*?)</pre>", page, re.DOTALL)[1])
    network = open_folder(export_folder).network
    sample = inputs_for(network, samples=1)
    steps = np.repeat(np.moveaxis(sample[0], 0, -1)[..., None], network.timesteps, -1)  # x, y, channel, time
    np.save(tmp_path / "samples.npy", steps.swapaxes(0, 1))
    (tmp_path / "network.net").write_bytes((export_folder / "network.net").read_bytes())
    assert printed_by(code, tmp_path) == emulate(network, sample).outputs[0].tolist()


@needs_lava
def test_the_lines_for_a_picture_without_convolutions_and_an_output_of_spikes(tmp_path):
    network = int_flat()
    sample = inputs_for(network, samples=1)
    expected = emulate(network, sample).outputs[0].tolist()
    np.save(tmp_path / "samples.npy", np.repeat(sample.reshape(-1, 1), network.timesteps, axis=1))
    write_netx(network, tmp_path / "network.net")
    assert printed_by(lava_lines(network), tmp_path) == expected and len(set(expected)) > 2


def int_flat():
    """input (1, 3, 4) -> dense (5,) -> dense (6,), which spikes"""
    generator = np.random.default_rng(0)
    sizes = {"first": (5, 12), "output": (6, 5)}
    layers = [
        Population(
            name=name,
            shape=(size,),
            neuron=Lif(threshold=generator.integers(9, 50, size), bias=np.full(size, 2), decay_voltage=1024),
        )
        for name, (size, _) in sizes.items()
    ]
    source = Population(name="input", shape=(1, 3, 4), neuron=Input(minimum=0, maximum=3))
    first, last = (Dense(weight=generator.integers(-4, 9, size=size)) for size in sizes.values())
    return IntNetwork(
        populations=(source, *layers),
        connections=(
            Connection(source="input", target="first", synapse=first),
            Connection(source="first", target="output", synapse=last),
        ),
        timesteps=5,
        scales={},
    )


def printed_by(code, folder):
    """Run a script in an interpreter of its own; return the integers that it prints."""
    (folder / "script.py").write_text(code, encoding="utf-8")
    done = subprocess.run([sys.executable, "script.py"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [int(word) for word in done.stdout.replace("[", " ").replace("]", " ").split()]


def test_commands_about_chips(export_folder, monkeypatch, capsys):
    """The lines of docs/fitting.md; tests/fit runs those that quantize again, which takes longer."""
    monkeypatch.chdir(export_folder.parent)
    (text,) = [text for text in blocks(ROOT / "docs" / "fitting.md", "sh") if "--targets" in text]
    lines = [
        line.partition("#")[0].split()
        for line in text.splitlines()
        if not re.search("--(advise|compare)", line)
    ]
    assert len(lines) > 4
    for _python, _m, module, *words in lines:
        assert console_script([module.removeprefix("mpbn_deploy."), *words]) in (0, 1), words
    assert "Loihi 2" in capsys.readouterr().out
