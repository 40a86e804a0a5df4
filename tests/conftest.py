import os

# Before torch is imported: networks this small gain nothing from threads, and threads that wait for
# each other on a busy machine make the suite many times slower.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest


@pytest.fixture(scope="session")
def digits():
    from mpbn_deploy.data import load_dataset

    return load_dataset("digits")


@pytest.fixture(scope="session")
def model_path(tmp_path_factory, digits):
    """A digits network, trained for two epochs."""
    from mpbn_deploy.checkpoint import save_model
    from mpbn_deploy.train import Training, train

    path = tmp_path_factory.mktemp("model") / "model.pt"
    save_model(path, train(digits, "digits-cnn", training=Training(epochs=2)))
    return path


@pytest.fixture(scope="session")
def export_folder(model_path):
    """The export of that network for Loihi 2; not to be changed by tests."""
    from mpbn_deploy.export import export

    result = export(model_path, "loihi2", samples=4)
    assert result.good
    return result.folder


@pytest.fixture
def netx_path(tmp_path):
    """network.net of a chain, which a test may spoil."""
    from networks import int_chain

    from mpbn_deploy.formats.netx import write_netx

    write_netx(int_chain(), tmp_path / "network.net")
    return tmp_path / "network.net"


@pytest.fixture
def netx_graph_path(tmp_path):
    """network.net with a skip connection and a delay."""
    from networks import int_residual

    from mpbn_deploy.formats.netx import write_netx

    write_netx(int_residual(delay=2), tmp_path / "graph.net")
    return tmp_path / "graph.net"
