"""Records: the frozen, slotted, keyword-only dataclasses of this package, with read-only arrays."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, wraps
from operator import attrgetter
from pathlib import Path
from textwrap import dedent
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray
from typing_extensions import dataclass_transform

from .files import json_text

Array = NDArray[Any]
Class = TypeVar("Class")
Result = TypeVar("Result")


@dataclass_transform(frozen_default=True, kw_only_default=True, eq_default=False)
def record(cls: type[Class]) -> type[Class]:
    """Make a class a record; records compare by identity (use `same_records` for content)."""
    return dataclass(frozen=True, slots=True, kw_only=True, eq=False)(cls)


@dataclass_transform(frozen_default=True, kw_only_default=True, eq_default=False)
def array_record(cls: type[Class]) -> type[Class]:
    """Make a class a record whose arrays are read-only copies, so that it cannot be changed in place."""
    cls.__post_init__ = freeze_arrays  # type: ignore[attr-defined]
    return record(cls)


def freeze_arrays(instance: Any) -> None:
    """Replace each array field by a read-only copy."""
    for field in fields(instance):
        value = getattr(instance, field.name)
        if isinstance(value, np.ndarray) and value.flags.writeable:
            frozen = np.array(value, order="C")
            frozen.flags.writeable = False
            object.__setattr__(instance, field.name, frozen)


def remembered(function: Callable[[Array], Result]) -> Callable[[Array], Result]:
    """Remember what a function returns for a read-only array, as long as the array exists."""
    known: dict[int, tuple[weakref.ref[Array], Result]] = {}

    @wraps(function)
    def remembering(array: Array) -> Result:
        if array.flags.writeable or array.base is not None:  # its values may change
            return function(array)
        key = id(array)
        if key not in known:
            known[key] = weakref.ref(array, lambda _: known.pop(key, None)), function(array)
        return known[key][1]

    return remembering


def same_records(left: Any, right: Any) -> bool:
    """Return whether two records (or tuples, mappings, arrays, plain values) have equal content."""
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        return bool(np.array_equal(left, right))
    if type(left) is not type(right):
        return False
    if hasattr(left, "__dataclass_fields__"):
        compared = [field.name for field in fields(left) if field.compare]
        return all(same_records(getattr(left, name), getattr(right, name)) for name in compared)
    if isinstance(left, (tuple, list)):
        return len(left) == len(right) and all(map(same_records, left, right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same_records(left[k], right[k]) for k in left)
    return bool(left == right)


# JSON that records are written as, and its schemas, both derived from the fields of the records.
#
#     @record
#     class CostItem(Report):
#         """`count` items of one cost."""
#
#         JSON = "name count each=cost"     keys, each with its attribute where that has another name;
#                                           "key?" was added later: it is optional in the schema;
#                                           "key??" is left out where it is None
#
#         name: str
#         count: float | None
#         cost: Cost | None  # the comment beside a field, or the docstring of a property, is its description
#
# Without JSON, all fields are keys. Every object that a command prints states its schema (`marked_json`).


SCHEMA_VERSION = 1
PLAIN = {bool: "boolean", int: "integer", float: "number", str: "string", Path: "string", NoneType: "null"}


class Report:
    """A record that is written as JSON."""

    __slots__ = ()
    JSON: ClassVar[str] = ""

    def to_json(self) -> dict[str, Any]:
        found = [(key, attrgetter(attribute)(self)) for key, attribute in _keys(type(self)).items()]
        return {key.rstrip("?"): plain(v) for key, v in found if v is not None or not key.endswith("??")}


def plain(value: Any) -> Any:
    """Return a value as JSON has it: records and mappings as dicts, tuples as lists."""
    if isinstance(value, Report):
        return value.to_json()
    if hasattr(value, "_asdict"):  # a NamedTuple
        return value._asdict()
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(each) for each in value]
    return str(value) if isinstance(value, Path) else value


def marked_json(name: str, data: Mapping[str, Any]) -> str:
    """Return an object as JSON that states its schema."""
    return json_text({"schema": f"mpbn_deploy.{name}/{SCHEMA_VERSION}", **data})


def schema_of(kind: Any) -> dict[str, Any]:
    """Return the JSON schema of values of a type; objects are described where they occur."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return {**schema_of(parts[0]), **parts[1]}
    if origin is Literal:
        return {"type": "string", "enum": list(parts)}
    if origin in (Union, UnionType):
        return _either([schema_of(each) for each in parts])
    if origin in (tuple, list):
        return {"type": "array", "items": _either([schema_of(each) for each in parts if each is not ...])}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": schema_of(parts[1])}
    return {"type": PLAIN[kind]} if kind in PLAIN else object_schema(kind)


def object_schema(record: type) -> dict[str, Any]:
    """Return the JSON schema of a record."""
    keys = _keys(record)
    described = {key: _described(record, attribute) for key, attribute in keys.items()}
    return {
        "description": (inspect.getdoc(record) or "").partition("\n")[0].rstrip("."),
        "type": "object",
        "required": [key for key in keys if not key.endswith("?")],
        "properties": {key.rstrip("?"): _present(schema, key) for key, schema in described.items()},
    }


def _present(schema: dict[str, Any], key: str) -> dict[str, Any]:
    """Return the schema of a value that is not None, for a key that is left out otherwise."""
    if not key.endswith("??"):
        return schema
    return {**schema, "type": next(each for each in schema["type"] if each != "null")}


def _either(schemas: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the schema of a union: {"type": ["integer", "null"]}, or anyOf."""
    distinct = [each for place, each in enumerate(schemas) if each not in schemas[:place]]
    if len(distinct) == 1:
        return distinct[0]
    one, *others = distinct
    if all(each == {"type": "null"} for each in others) and "enum" not in one and "anyOf" not in one:
        return {**one, "type": [one["type"], "null"]}
    return {"anyOf": distinct}


def _keys(record: Any) -> dict[str, str]:
    """Return the keys of a record, as its JSON lists them, and the attribute of each."""
    named = record._fields if hasattr(record, "_fields") else [field.name for field in fields(record)]
    listed = getattr(record, "JSON", "").split() or named
    parts = [word.partition("=") for word in listed]
    return {key: attribute or key.rstrip("?") for key, _, attribute in parts}


def _described(record: type, attribute: str) -> dict[str, Any]:
    """Return the schema of an attribute of a record: a field, or a property."""
    attribute, _, inner = attribute.partition(".")
    found = getattr(record, attribute, None)
    if isinstance(found, property):
        kind, text = get_type_hints(found.fget, include_extras=True)["return"], inspect.getdoc(found) or ""
    else:
        home = next(each for each in record.__mro__ if attribute in inspect.get_annotations(each))
        # One annotation alone: others may name what is imported for mypy only.
        hint: Any = inspect.get_annotations(home)[attribute]
        hint = getattr(hint, "__forward_arg__", hint)
        kind = eval(hint, vars(sys.modules[home.__module__])) if isinstance(hint, str) else hint
        text = _comments(home).get(attribute, "")
    if inner:
        return _described(kind, inner)
    schema = schema_of(kind)
    return {**schema, "description": text.partition("\n")[0].rstrip(".")} if text else schema


@cache
def _comments(record: Any) -> dict[str, str]:
    """Return the comment beside each field in the source of a record."""
    return dict(_field_comments(inspect.getsource(record)))


def _field_comments(source: str) -> Iterator[tuple[str, str]]:
    lines = dedent(source).splitlines()
    (defined,) = ast.parse("\n".join(lines)).body
    assert isinstance(defined, ast.ClassDef)
    for node in defined.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found = re.search(r"  # (.*)$", lines[(node.end_lineno or 0) - 1])
            if found:
                yield node.target.id, found[1]
