"""Data sets of tonic: frames that its ToFrame makes of events, as code and as files."""

import numpy as np
import pytest

from mpbn_deploy.base import DataError
from mpbn_deploy.data import load_dataset

tonic = pytest.importorskip("tonic", reason="tonic is not installed (pip install tonic)")
pytestmark = pytest.mark.interop

MODULE = """
import numpy as np
import tonic
from tonic import transforms

SIZE = (6, 5, 2)


class Events(tonic.Dataset):
    dtype = np.dtype([("x", np.int16), ("y", np.int16), ("p", bool), ("t", np.int64)])

    def __init__(self, count, transform=None):
        super().__init__("unused", transform=transform)
        self.count = count

    def __getitem__(self, index):
        if index >= self.count:
            raise IndexError(index)
        generator = np.random.default_rng(index)
        events = np.zeros(50, self.dtype)
        events["x"], events["y"] = generator.integers(0, 6, 50), generator.integers(0, 5, 50)
        events["p"], events["t"] = generator.random(50) < 0.5, np.sort(generator.integers(0, 9999, 50))
        return events if self.transform is None else self.transform(events), index % 3

    def __len__(self):
        return self.count

    def _check_exists(self):
        return True


def frames():
    to_frame = transforms.ToFrame(sensor_size=SIZE, n_time_bins=4)
    return tonic.MemoryCachedDataset(Events(12, to_frame)), Events(6, to_frame)


def events():
    return Events(12), Events(6)
"""


@pytest.fixture
def made(tmp_path, monkeypatch):
    (tmp_path / "tonic_events.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    import tonic_events

    return tonic_events


def test_a_data_set_of_frames(made):
    dataset = load_dataset("tonic_events:frames")
    expected = np.stack([frames for frames, _ in made.frames()[1]])
    assert dataset.test.inputs.shape == (6, 4, 2, 5, 6) and np.array_equal(dataset.test.inputs, expected)
    assert dataset.test.labels.tolist() == [0, 1, 2, 0, 1, 2] and len(dataset.train) == 12


def test_frames_in_files(made, tmp_path):
    for number, (frames, label) in enumerate(made.frames()[1]):
        (tmp_path / "recordings" / str(label)).mkdir(parents=True, exist_ok=True)
        np.save(tmp_path / "recordings" / str(label) / f"{number}.npy", frames)
    dataset = load_dataset("recordings")
    assert dataset.train.inputs.shape[1:] == (4, 2, 5, 6)


def test_events_that_are_no_frames(made):
    with pytest.raises(DataError, match=r"are events \(x, y, p, t\); frames are needed"):
        load_dataset("tonic_events:events")
