"""The export folder: what lies in it, how it is written whole, and how it is read back.

    network.nir     the folded network, real numbers
    network.net     the integer network, as lava-dl netx
    fit.json        the FitReport        verify.json    the VerifyReport
    report.html     both for people
    manifest.json   hashes of the model and of every file here, versions, options, scales, formats

Reading checks every hash, so what runs is what was verified. `run`, `verify` and `fit` also take a
single .net file, ours or of others, in place of a folder.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..base import FormatError, OptionError, json_text, record
from ..data import Samples, choose_samples
from ..ir import FoldedNetwork, IntNetwork
from .netx import read_netx
from .nir import read_folded
from .options import ExportOptions

FORMAT = "mpbn_deploy.export"
VERSION = 1
NIR_FILE, NETX_FILE, MANIFEST_FILE = "network.nir", "network.net", "manifest.json"
FIT_FILE, VERIFY_FILE, REPORT_FILE = "fit.json", "verify.json", "report.html"
FILES = (NIR_FILE, NETX_FILE, FIT_FILE, VERIFY_FILE, REPORT_FILE)
NIR_SUFFIX, NETX_SUFFIX = ".nir", ".net"
TO_EXPORT = {NIR_SUFFIX: "a NIR file", ".pt": "a checkpoint", ".pth": "a checkpoint", ".ckpt": "a checkpoint"}


@record
class ExportFolder:
    """An export folder whose hashes hold."""

    path: Path
    manifest: dict[str, Any]
    network: IntNetwork
    folded: FoldedNetwork

    @property
    def netx(self) -> Path:
        return self.path / NETX_FILE

    @property
    def target(self) -> str | None:
        return str(self.manifest["target"]["name"])

    @property
    def options(self) -> ExportOptions:
        """The options of the export, as far as the manifest records them."""
        return ExportOptions.from_manifest(self.manifest.get("options"), str(self.path / MANIFEST_FILE))

    @property
    def architecture(self) -> str | None:
        """The architecture that the checkpoint named; None for a NIR file."""
        name = self.manifest["model"]["architecture"]
        return None if name is None else str(name)

    @property
    def class_names(self) -> list[str]:
        return list(self.manifest["class_names"])

    def samples(self, count: int | None, data: str | None, data_dir: Path | None) -> Samples:
        """Test samples of a data set (None: all), by default the one the model was trained on."""
        return choose_samples(self.network, count, data or self.manifest["data"], data_dir)


@record
class NetworkFile:
    """A .net file alone: the integer network, and nothing about where it comes from."""

    netx: Path
    network: IntNetwork
    folded: FoldedNetwork | None = None
    target: str | None = None
    class_names: Sequence[str] = ()

    def samples(self, count: int | None, data: str | None, data_dir: Path | None) -> Samples:
        """Test samples of a data set (None: all), by default random ones."""
        return choose_samples(self.network, count, data, data_dir)


# ---- reading ----------------------------------------------------------------------------------


def open_network(path: Path, **given: Any) -> ExportFolder | NetworkFile:
    """Open an export folder, or a .net file; `given` are the arguments of `read_netx`, for such a file."""
    if path.suffix in TO_EXPORT and not path.is_dir():
        raise OptionError(
            f"{path}: {TO_EXPORT[path.suffix]}; here an export folder or a .net file is needed. "
            f"Export it first: python -m mpbn_deploy.export {path} --target loihi2"
        )
    if path.is_file() or (path.suffix == NETX_SUFFIX and not path.is_dir()):
        return NetworkFile(netx=path, network=read_netx(path, **given))
    if useless := [name for name, value in given.items() if value is not None]:
        option = useless[0].replace("_", "-")
        raise OptionError(f"{path}: --{option} is for .net files; an export folder says it itself.")
    return open_folder(path)


def open_folder(path: str | Path) -> ExportFolder:
    """Read an export folder, checking every hash."""
    path = Path(path)
    manifest = read_manifest(path)
    for name, expected in manifest["files"].items():
        file = path / name
        if not file.is_file():
            raise FormatError(f"{file}: missing; the manifest lists it. Export again.")
        if sha256(file) != expected:
            raise FormatError(f"{file}: changed since it was exported (its sha256 is another). Export again.")
    return ExportFolder(
        path=path,
        manifest=manifest,
        network=read_netx(path / NETX_FILE),
        folded=read_folded(path / NIR_FILE),
    )


def read_manifest(path: Path) -> dict[str, Any]:
    file = path / MANIFEST_FILE
    if not file.is_file():
        raise FormatError(
            f"{path}: no export folder (it has no {MANIFEST_FILE}). Make one with mpbn_deploy.export."
        )
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise FormatError(f"{file}: not readable as JSON ({error}).") from error
    if (
        not isinstance(manifest, dict)
        or manifest.get("format") != FORMAT
        or manifest.get("version") != VERSION
    ):
        raise FormatError(
            f"{file}: not an export of version {VERSION}; export the model again with this release."
        )
    files, target = manifest.get("files"), manifest.get("target")
    if not isinstance(files, dict) or set(files) != set(FILES) or not isinstance(target, dict):
        raise FormatError(f"{file}: damaged; it must list {', '.join(FILES)} and a target.")
    names = [target.get("name"), manifest.get("data"), *_as_list(manifest.get("class_names"))]
    if not all(isinstance(name, str) for name in names):
        raise FormatError(f"{file}: damaged; the names of target, data set or classes are no names.")
    return manifest


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [None]


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


# ---- writing ----------------------------------------------------------------------------------


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """A temporary folder to fill; when all went well it is renamed to `out`, else it vanishes."""
    refuse_to_overwrite(out)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{out.name}.", suffix=".part", dir=out.parent) as temporary:
            staging = Path(temporary) / "new"
            staging.mkdir()
            yield staging
            if out.exists():  # moved aside, and deleted only when the new one stands in its place
                out.rename(Path(temporary) / "old")
            staging.rename(out)
    except OSError as error:
        raise OptionError(f"{out}: cannot be written ({error.strerror or error}).") from error


def write_manifest(folder: Path, described: Mapping[str, Any]) -> None:
    """The last file of a folder: what the caller describes, and the hashes of all others."""
    files = {name: sha256(folder / name) for name in FILES}
    manifest = {"format": FORMAT, "version": VERSION, **described, "files": files}
    (folder / MANIFEST_FILE).write_text(json_text(manifest), encoding="utf-8")


def refuse_to_overwrite(out: Path) -> None:
    """An earlier export may be replaced, and an empty folder filled; anything else is somebody's work."""
    if out.is_symlink():
        raise OptionError(f"{out}: is a link; give the folder itself with --out.")
    if out.exists() and not _is_empty(out) and not _is_export(out):
        raise OptionError(f"{out}: exists and is not an export folder; choose another with --out.")


def _is_empty(folder: Path) -> bool:
    return folder.is_dir() and not any(folder.iterdir())


def _is_export(folder: Path) -> bool:
    """Whether a folder holds an export and nothing else."""
    if not folder.is_dir() or not {file.name for file in folder.iterdir()} <= {*FILES, MANIFEST_FILE}:
        return False
    try:
        return bool(read_manifest(folder))
    except FormatError:
        return False
