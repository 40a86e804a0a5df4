"""The JSON schemas of what commands print with --json and of the JSON files of an export folder.

    python -m mpbn_deploy.schemas fit        print one of them; without a name, list them

They derive from the records that are written (`base/records.py`) and from the records of options. Every such
object has a key "schema", "mpbn_deploy.fit/1": its name and version. Within a version, keys may be added;
none is removed, renamed or given another type or meaning. The manifest has `format` and `version` instead.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from inspect import isfunction
from typing import Any, NamedTuple

from .base import (
    SCHEMA_VERSION,
    OptionError,
    did_you_mean,
    json_text,
    object_schema,
    options_schema,
    schema_of,
)
from .doctor import Diagnosis
from .export import ExportResult
from .fit import Advice, FitReport, NeuroBenchMetrics, SearchResult, ThresholdVariant
from .formats.folder import FORMAT, VERSION
from .formats.nir import Assumption
from .formats.options import ExportOptions
from .hardware import ProfileSummary
from .ir import Overflow
from .quantize import RoundingErrors, Widths
from .report import ComparedExport
from .train import Building, Training
from .verify import CertificateCheck, VerifyReport, drift_schema

DIALECT = "https://json-schema.org/draft/2020-12/schema"
REQUIRED_SETTINGS = ("epochs", "batch", "nesterov", "clip_gradient", "augmentation", "seed")


class Run(NamedTuple):
    """An exported network, run on samples."""

    backend: str  # the executor
    data: str  # name of the data set
    samples: int  # number of samples
    predictions: list[int]  # class of each sample
    accuracy: float | None  # fraction of right predictions; null without labels
    samples_per_second: float
    overflows: dict[str, Overflow]  # by population; of networks not quantized here; sums of Xylo saturate


class Doctor(NamedTuple):
    """What works on this machine."""

    mpbn_deploy: str  # version
    platform: str  # Python and operating system
    works: bool  # whether everything that is needed works
    checks: list[Diagnosis]


class Compared(NamedTuple):
    """Several exports on one page."""

    page: str  # the page written
    exports: list[ComparedExport]


class Error(NamedTuple):
    """Bad input, or a bug of this tool."""

    JSON = "error bug?"  # type: ignore[misc]

    error: str  # what was found, what is allowed, what to do
    bug: str  # for code 70: that it is a bug of this tool, and the file with its traceback


class Model(NamedTuple):
    """The model that was exported."""

    name: str
    sha256: str
    architecture: str | None  # null for a NIR file


class Target(NamedTuple):
    """The chip."""

    name: str


class Trained(NamedTuple):
    """The training record; arguments of your own network are further keys."""

    model: str  # the checkpoint written
    architecture: str
    data: str
    input_shape: list[int]
    classes: int
    epoch: int  # the last one that was trained
    test_accuracy: float | None
    validation_accuracy: float | None
    recalibrated: bool


def _printed(name: str, title: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a printed object, which has a key that states it."""
    described = {
        "description": "name and version of this schema",
        "const": f"mpbn_deploy.{name}/{SCHEMA_VERSION}",
    }
    forms = [
        {
            **form,
            "required": ["schema", *form["required"]],
            "properties": {"schema": described, **form["properties"]},
        }
        for form in schema.get("anyOf", [schema])
    ]
    return _headed(name, title, {"anyOf": forms} if "anyOf" in schema else forms[0])


def _headed(name: str, title: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"$schema": DIALECT, "$id": f"urn:mpbn_deploy:{name}:{SCHEMA_VERSION}", "title": title, **schema}


def _object(**properties: Any) -> dict[str, Any]:
    """Return the schema of an object with keys of these types."""
    described = {key: schema_of(kind) for key, kind in properties.items()}
    return {"type": "object", "required": [*properties], "properties": described}


def _fit() -> dict[str, Any]:
    """A network on one chip, on several, or the list of chips."""
    one = object_schema(FitReport)
    asked = {"advice": Advice, "thresholds": ThresholdVariant, "search": SearchResult}
    one["properties"] |= {key: {"type": "array", "items": object_schema(kind)} for key, kind in asked.items()}
    chip = object_schema(ProfileSummary)
    chip["properties"] |= {"name": {"type": "string"}, "description": {"type": "string"}}
    chip["required"] = [key for key in chip["properties"] if key not in ("is_chip", "origin")]
    several, chips = ({"targets": {"type": "array", "items": each}} for each in (one, chip))
    forms = [several, {**chips, "left_out": schema_of(list[str])}]
    lists = [{"type": "object", "required": ["targets"], "properties": form} for form in forms]
    return {"anyOf": [one, *lists]}


def _verify() -> dict[str, Any]:
    schema = object_schema(VerifyReport)
    population = schema["properties"]["populations"]["items"]
    population["properties"] |= drift_schema()
    population["required"].append("spike_agreement")
    schema["properties"]["certificate"] = object_schema(CertificateCheck)
    return schema


def _train() -> dict[str, Any]:
    network = {
        name: replace(each, optional=False) for name, each in Building.declared.items() if name != "arch"
    }
    schema = object_schema(Trained)
    schema["properties"] |= {name: each.schema for name, each in {**network, **Training.declared}.items()}
    schema["required"] = ["model", "architecture", "data", "timesteps", *REQUIRED_SETTINGS, "epoch"]
    return {**schema, "additionalProperties": True}


def _manifest() -> dict[str, Any]:
    schema = _object(
        model=Model,
        target=Target,
        data=str,
        class_names=list[str],
        formats=dict[str, int],
        versions=dict[str, str | None],
        form=dict[str, str],
        assumptions=list[Assumption],
        quantization=list[RoundingErrors],
        widths=Widths,
        scales=dict[str, list[float]],
        files=dict[str, str],
        sha256=str,
    )
    described = "the options that determine the bytes of the network files"
    schema["properties"] |= {
        "format": {"const": FORMAT},
        "version": {"const": VERSION},
        "options": options_schema(ExportOptions, description=described),
    }
    return {**schema, "required": [key for key in schema["properties"] if key not in ("form", "widths")]}


# What each says of itself, and the record that it is, or the function that derives it from several.
PRINTED: dict[str, tuple[str, Any]] = {
    "doctor": ("What `doctor --json` prints", Doctor),
    "error": ("What any command prints with --json if it exits with code 2 or 70", Error),
    "export": ("What `export --json` prints", ExportResult),
    "fit": ("What `fit --json` prints, and fit.json of an export folder", _fit),
    "neurobench": (
        "neurobench.json of an export folder: NeuroBench's metrics of the integers, means per sample",
        NeuroBenchMetrics,
    ),
    "report": ("What `report --json` prints", Compared),
    "run": ("What `run --json` prints", Run),
    "train": ("What `train --json` prints", _train),
    "verify": ("What `verify --json` prints, and verify.json of an export folder", _verify),
}
MANIFEST = "manifest"


def schema_names() -> list[str]:
    """Return the names of all schemas."""
    return sorted([*PRINTED, MANIFEST])


def json_schema(name: str) -> dict[str, Any]:
    """Return a schema by name: json_schema("fit")."""
    if name == MANIFEST:
        return _headed(name, "manifest.json of an export folder", _manifest())
    if name not in PRINTED:
        raise OptionError(f"no JSON schema {name!r}. {did_you_mean(name, schema_names())}")
    title, derived = PRINTED[name]
    return _printed(name, title, derived() if isfunction(derived) else object_schema(derived))


def main(names: Sequence[str]) -> int:
    """Print schemas, or their names."""
    try:
        print("\n".join(schema_names()) if not names else "".join(json_text(json_schema(n)) for n in names))
    except OptionError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
