import gc
import os
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

# Before torch is imported: networks this small gain nothing from threads, and threads that wait for
# each other on a busy machine make the suite many times slower.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from filelock import FileLock
from hypothesis import settings

from mpbn_deploy.base import options
from mpbn_deploy.execute.lava import compat, lava_version

# Before others import it from there: Lava's own models run only in tests that ask for them.
options.USUAL_BUDGET = 0.0

# HYPOTHESIS_PROFILE or --hypothesis-profile chooses: `ci` tries the same examples each time, `dev` new ones,
# `long` many. A test tries as many as its `examples(n)` says where the profile has 100 (properties.py).
settings.register_profile("ci", max_examples=100, deadline=None, derandomize=True)
settings.register_profile("dev", max_examples=100, deadline=None)
settings.register_profile("long", max_examples=2000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

EXAMPLES = Path(__file__).parents[1] / "examples"


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="rewrite what tests/golden expects")


def pytest_collection_modifyitems(items):
    """Begin with the files that take long, so that no process is left alone with one at the end.

    Lava's processes are forks of this one, which are cheap as long as it is small: its files come first,
    and then the others that take long, which import or train much.
    """
    lava, cluster, slow = (
        {item.path for item in items if item.get_closest_marker(name)} for name in ("lava", "cluster", "slow")
    )
    items.sort(
        key=lambda item: [
            item.path not in lava - cluster - slow,
            item.path not in cluster,
            item.path not in slow,
        ]
    )


def pytest_collection_finish():
    """Let neither this process nor its forks search what was imported, which stays, for garbage."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item):
    if item.get_closest_marker("lava") and lava_version() is None:
        pytest.skip("lava-nc is not installed")


@pytest.fixture
def without_lava(request, monkeypatch):
    """Let exports start no Lava, dozens of processes each time, unless the test is marked `lava`."""
    if not request.node.get_closest_marker("lava"):
        monkeypatch.setattr(compat, "installed_version", lambda package: None)


@pytest.fixture(scope="session")
def digits():
    from mpbn_deploy.data import load_dataset

    return load_dataset("digits")


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory, worker_id):
    """Return a folder for files that all test processes share."""
    own = tmp_path_factory.getbasetemp()
    return own if worker_id == "master" else own.parent


@pytest.fixture(scope="session")
def model_path(shared_folder, digits):
    """Return a digits network, trained for two epochs."""
    from mpbn_deploy.checkpoint import save_model
    from mpbn_deploy.train import Training, train

    path = shared_folder / "model" / "model.pt"
    with FileLock(shared_folder / "model.lock"):
        if not path.exists():
            path.parent.mkdir()
            save_model(path, train(digits, "digits-cnn", training=Training(epochs=2)))
    return path


@pytest.fixture(scope="session")
def export_folder(shared_folder, model_path):
    """Return the export of that network for Loihi 2; tests must not change it."""
    from mpbn_deploy.export import export

    folder = model_path.with_name("model.loihi2")
    with FileLock(shared_folder / "export.lock"):
        if not folder.exists():
            assert export(model_path, "loihi2", samples=4, out=folder).good
    return folder


@pytest.fixture
def netx_path(tmp_path):
    """Return network.net of a chain, which a test may damage."""
    from networks import int_chain

    from mpbn_deploy.formats.netx import write_netx

    write_netx(int_chain(), tmp_path / "network.net")
    return tmp_path / "network.net"


@pytest.fixture
def netx_graph_path(tmp_path):
    """Return network.net with a skip connection and a delay."""
    from networks import int_residual

    from mpbn_deploy.formats.netx import write_netx

    write_netx(int_residual(delay=2), tmp_path / "graph.net")
    return tmp_path / "graph.net"


@pytest.fixture
def run_here(monkeypatch, capfd):
    """Run an example, or the script of a path, in this process, which has imported torch.

    Gives its exit code, and what it printed.
    """

    def run(name, *arguments):
        script = EXAMPLES / name
        monkeypatch.setattr(sys, "argv", [str(name), *map(str, arguments)])
        monkeypatch.syspath_prepend(script.parent)  # as a script has its folder
        code = 0
        try:
            runpy.run_path(str(script), run_name="__main__")
        except SystemExit as ended:
            code = ended.code
        out, err = capfd.readouterr()
        return subprocess.CompletedProcess(name, code, out, err)

    return run


@pytest.fixture
def short_folder():
    """Return a temporary folder with a short path: paths of sockets have about a hundred characters."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)
