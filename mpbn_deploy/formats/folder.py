"""The export folder: its files, written all or none, and read with their hashes checked.

    network.nir     the folded network (real numbers), as NIR
    network.net     the integer network, as lava-dl netx
    fit.json        the FitReport
    verify.json     the VerifyReport
    report.html     both reports, to read in a browser
    neurobench.json the metrics of NeuroBench
    xylo.npz        for Xylo: the arguments of Rockpool's config_from_specification, with a card, xylo.json,
                    and run_on_xylo.py, which loads them into Rockpool
    run.toml        the model's name, the target and all options, to repeat the export
    fpga/           for FPGAs: the core in Verilog, the network's memories, a Makefile; not hashed
    manifest.json   hashes of the model and of every file here, versions, options, scales, formats

Reading checks every hash, that of the manifest itself included, so the network that runs is the one that was
verified. The hashes detect damage; they are not a signature, because whoever changes a file can change its
hash too. Instead of a folder, `run`, `verify` and `fit` also accept a single .net file, written by this
package or by lava-dl.
"""

from __future__ import annotations

import errno
import hashlib
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from ..base import (
    MANIFEST_FILE,
    FormatError,
    OptionError,
    abandoned,
    json_text,
    one_line,
    option_name,
    owned_name,
    read_json,
    record,
    remove_abandoned,
    similar_path,
)
from ..data import DATASETS, RANDOM, Samples, choose_samples, data_named_by_file, dataset_name
from ..ir import FoldedNetwork, IntNetwork
from .c import FOLDER as PROGRAM
from .netx import read_netx
from .nir import Assumption, read_folded
from .options import ExportOptions, read_config
from .verilog import FOLDER as FPGA_FOLDER
from .xylo import XYLO_FILES

FORMAT = "mpbn_deploy.export"
VERSION = 2
HASHED_BYTES = 2**20  # at once
FULL_DISK = (errno.ENOSPC, errno.EDQUOT)
NIR_FILE, NETX_FILE = "network.nir", "network.net"
FIT_FILE, VERIFY_FILE, REPORT_FILE = "fit.json", "verify.json", "report.html"
NEUROBENCH_FILE, CONFIG_FILE = "neurobench.json", "run.toml"
FILES = (NIR_FILE, NETX_FILE, FIT_FILE, VERIFY_FILE, REPORT_FILE, NEUROBENCH_FILE, CONFIG_FILE)
PROJECTS = (PROGRAM, FPGA_FOLDER)  # folders to build in; the manifest lists what is in the first
NEEDED_FILES = (
    NIR_FILE,
    NETX_FILE,
    FIT_FILE,
    VERIFY_FILE,
    REPORT_FILE,
)  # releases before 0.3 wrote no others
NIR_SUFFIX, NETX_SUFFIX = ".nir", ".net"
DATA_SUFFIXES = (".npz", ".npy")
TO_EXPORT = {
    NIR_SUFFIX: "a NIR file",
    ".pt": "a checkpoint",
    ".pth": "a checkpoint",
    ".ckpt": "a checkpoint",
    ".safetensors": "a checkpoint",
}


@record
class ExportFolder:
    """An export folder whose hashes have been checked."""

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
        """The options of the export that the manifest records."""
        return ExportOptions.from_recorded(self.manifest.get("options"), str(self.path / MANIFEST_FILE))

    @property
    def architecture(self) -> str | None:
        """The architecture of the checkpoint; None for a NIR file."""
        name: str | None = self.manifest["model"].get("architecture")
        return name

    @property
    def data_words(self) -> list[str]:
        """The options with which a command finds the data set of the export; none for random inputs.

        run.toml holds the path as typed, the manifest only the name of a file.
        """
        name = str(self.manifest["data"])
        if name == RANDOM:
            return []
        typed = self._typed_options()
        data, folder = str(typed.get("data")), typed.get("data_dir")
        named = [] if name in DATASETS else ["--data", data if dataset_name(data) == name else name]
        found = [] if folder is None else ["--data-dir", str(folder)]
        return [one_line(word) for word in (*named, *found)]

    def _typed_options(self) -> dict[str, Any]:
        """Return the options in run.toml; none if there is no such file, or another release wrote it."""
        try:
            return read_config(self.path / CONFIG_FILE) if CONFIG_FILE in self.manifest["files"] else {}
        except FormatError:
            return {}

    @property
    def class_names(self) -> list[str]:
        return list(map(one_line, self.manifest["class_names"]))

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """The assumptions under which the model was read."""
        return tuple(Assumption(**assumed) for assumed in self.manifest.get("assumptions", []))

    def samples(self, count: int | None, data: str | None, data_dir: Path | None) -> Samples:
        """Return `count` test samples (None: all) of a data set, by default the one used in training."""
        recorded = self.manifest["data"]
        if data is None and recorded != RANDOM:
            data = data_named_by_file(recorded, None)
        return choose_samples(self.network, count, data or RANDOM, data_dir)


@record
class NetworkFile:
    """A single .net file: the integer network, without the model, the target or the data set."""

    netx: Path
    network: IntNetwork
    folded: FoldedNetwork | None = None
    target: str | None = None
    class_names: Sequence[str] = ()
    assumptions: tuple[Assumption, ...] = ()

    def samples(self, count: int | None, data: str | None, data_dir: Path | None) -> Samples:
        """Return `count` test samples (None: all) of a data set, by default random ones."""
        return choose_samples(self.network, count, data, data_dir)


# ---- reading ----------------------------------------------------------------------------------


def open_network(path: Path, **given: Any) -> ExportFolder | NetworkFile:
    """Open an export folder or a .net file; `given` are arguments of `read_netx`, for .net files only."""
    if path.suffix in TO_EXPORT and not path.is_dir():
        raise OptionError(
            f"{path}: {TO_EXPORT[path.suffix]}; this command needs an export folder or a .net file. "
            f"Export it first: python -m mpbn_deploy.export {path} --target loihi2"
        )
    if path.is_file() and path.suffix in DATA_SUFFIXES:
        raise OptionError(
            f"{path}: a file of data; this command needs an export folder or a .net file. Name the network "
            f"first, and the data with --data {path}"
        )
    if path.is_file() and path.name in (*FILES, MANIFEST_FILE) and path.suffix != NETX_SUFFIX:
        raise OptionError(f"{path}: a file of an export folder; name the folder itself, {path.parent}.")
    if path.is_file() or (path.suffix == NETX_SUFFIX and not path.is_dir()):
        return NetworkFile(netx=path, network=read_netx(path, **given))
    if useless := [name for name, value in given.items() if value is not None]:
        option = option_name(useless[0])
        raise OptionError(f"{path}: {option} is for .net files only; an export folder records it. Omit it.")
    return open_folder(path)


def open_folder(path: str | Path) -> ExportFolder:
    """Read an export folder and check every hash."""
    path = Path(path)
    manifest = read_manifest(path)
    for name, expected in manifest["files"].items():
        file = path / name
        if not file.is_file():
            raise FormatError(f"{file}: missing; the manifest lists it. Export again.")
        if sha256(file) != expected:
            raise FormatError(f"{file}: changed since it was exported (its sha256 differs). Export again.")
    return ExportFolder(
        path=path,
        manifest=manifest,
        network=read_netx(path / NETX_FILE),
        folded=read_folded(path / NIR_FILE),
    )


def read_manifest(path: Path) -> dict[str, Any]:
    file = path / MANIFEST_FILE
    if not path.exists():
        raise FormatError(
            f"{path}: does not exist.{similar_path(path)} Name a folder that python -m mpbn_deploy.export "
            "wrote, or a .net file."
        )
    if not file.is_file():
        raise FormatError(
            f"{path}: not an export folder (it has no {MANIFEST_FILE}), nor a .net file. Make a folder with "
            "python -m mpbn_deploy.export."
        )
    manifest = read_json(file)
    if (
        not isinstance(manifest, dict)
        or manifest.get("format") != FORMAT
        or manifest.get("version") != VERSION
    ):
        raise FormatError(
            f"{file}: not an export of version {VERSION}; export the model again with this release."
        )
    if manifest.get("sha256") != seal(manifest):
        raise FormatError(f"{file}: changed since it was exported (its own sha256 differs). Export again.")
    files, target = manifest.get("files"), manifest.get("target")
    listed = isinstance(files, dict) and set(NEEDED_FILES) <= {*filter(_is_no_program, files)} <= {
        *FILES,
        *XYLO_FILES,
    }
    if not listed or not isinstance(target, dict):
        raise FormatError(f"{file}: damaged; it must list {', '.join(FILES)} and a target.")
    names = [target.get("name"), manifest.get("data"), *_as_list(manifest.get("class_names"))]
    if not all(isinstance(name, str) for name in names):
        raise FormatError(f"{file}: damaged; the names of target, data set and classes must be strings.")
    model = manifest.get("model")
    if not isinstance(model, dict) or not _is_file_name(model.get("name")):
        raise FormatError(f"{file}: damaged; it must name the model's file, without a folder.")
    if not isinstance(model.get("architecture"), str | None):
        raise FormatError(f"{file}: damaged; the architecture of the model must be a string, or null.")
    if not all(_is_assumption(assumed) for assumed in _as_list(manifest.get("assumptions", []))):
        raise FormatError(f"{file}: damaged; each assumption must say what and why.")
    return manifest


def _is_no_program(name: str) -> bool:
    """Whether a listed file is not one of the C program's, which lie in a folder of their own."""
    inside = name.startswith(f"{PROGRAM}/") and ".." not in name.split("/")
    return not inside


def _is_file_name(value: Any) -> bool:
    return isinstance(value, str) and value == Path(value).name


def _is_assumption(value: Any) -> bool:
    texts = value.values() if isinstance(value, dict) and value.keys() == {"what", "why"} else [None]
    return all(isinstance(text, str) for text in texts)


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [None]


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(HASHED_BYTES):
            digest.update(block)
    return digest.hexdigest()


# ---- writing ----------------------------------------------------------------------------------


def folder_beside(model: Path, target: str) -> Path:
    """Return model.loihi2, beside the model, for model.pt and the target loihi2: where `export` writes."""
    if not model.name:
        raise OptionError(f"{model}: a folder, not a file.")
    return model.with_name(f"{model.stem}.{target}")


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """Yield a temporary folder to fill; rename it to `out` on success, delete it on errors."""
    check_replaceable(out)
    prefix = owned_name(f".{out.name}.")
    with ExitStack() as stack:
        with _writing(out):
            out.parent.mkdir(parents=True, exist_ok=True)
            _tidy(out)
            part = tempfile.TemporaryDirectory(prefix=prefix, suffix=".part", dir=out.parent)
            temporary = Path(stack.enter_context(part))
            staging = temporary / "new"
            staging.mkdir()
        with _writing(out, staging):
            yield staging
        with _writing(out):
            aside = temporary / "old"  # deleted once the new one is in its place
            try:
                if out.exists():
                    out.rename(aside)
                staging.rename(out)
            finally:  # an interrupt or an error in between leaves the old one
                if aside.exists() and not out.exists():
                    aside.rename(out)


@contextmanager
def _writing(out: Path, inside: Path | None = None) -> Iterator[None]:
    """Turn an OSError into the message that `out` cannot be written.

    With `inside`, only if the disk is full or the error is about a file in that folder.

    Other work is done while the folder is filled, and its errors are not about the folder.
    """
    try:
        yield
    except OSError as error:
        of_folder = inside is None or (
            isinstance(error.filename, str) and inside in Path(error.filename).parents
        )
        if not of_folder and error.errno not in FULL_DISK:
            raise
        raise OptionError(f"{out}: cannot be written ({error.strerror or error}).") from error


def _tidy(out: Path) -> None:
    """Remove what killed exports to the same folder left; put back a folder that they had moved aside."""
    for left in abandoned(out.parent, f".{out.name}."):
        if (left / "old").is_dir() and not out.exists():
            (left / "old").rename(out)
    remove_abandoned(out.parent, f".{out.name}.")


def write_manifest(folder: Path, described: Mapping[str, Any]) -> None:
    """Write the manifest, after all other files: the caller's description and the hashes of those files."""
    program = sorted(path for path in (folder / PROGRAM).rglob("*") if path.is_file())
    others = [name for name in XYLO_FILES if (folder / name).exists()]
    names = [*FILES, *others, *(path.relative_to(folder).as_posix() for path in program)]
    files = {name: sha256(folder / name) for name in names}
    manifest = {"format": FORMAT, "version": VERSION, **described, "files": files}
    manifest["sha256"] = seal(manifest)
    (folder / MANIFEST_FILE).write_text(json_text(manifest), encoding="utf-8")


def seal(manifest: Mapping[str, Any]) -> str:
    """Return the hash of a manifest's content, whatever its layout; its key "sha256" is left out."""
    content = {key: value for key, value in manifest.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def check_replaceable(out: Path) -> bool:
    """Return whether `out` is an earlier export; raise unless it is, or is missing or empty."""
    if out.is_symlink():
        raise OptionError(f"{out}: is a link; give the folder itself with --out.")
    if not out.exists() or _is_empty(out):
        return False
    if not _is_export(out):
        raise OptionError(f"{out}: exists and is not an export folder; choose another with --out.")
    return True


def _is_empty(folder: Path) -> bool:
    return folder.is_dir() and not any(folder.iterdir())


def _is_export(folder: Path) -> bool:
    """Whether a folder contains an export, of any version, and nothing else."""
    if not folder.is_dir() or not {file.name for file in folder.iterdir()} <= {
        *FILES,
        *XYLO_FILES,
        *PROJECTS,
        MANIFEST_FILE,
    }:
        return False
    try:
        manifest = read_json(folder / MANIFEST_FILE)
    except FormatError:
        return False
    return isinstance(manifest, dict) and manifest.get("format") == FORMAT
