"""JSON schemas derive from the records, and no key of a version is removed or given another type."""

import json
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import pytest
from jsonschema import Draft202012Validator

from mpbn_deploy.base import Report, object_schema, record
from mpbn_deploy.schemas import json_schema, main, schema_names

KEYS = Path(__file__).with_name("schema_keys.txt")


def kinds(schema):
    """Return the types that a schema allows."""
    if "anyOf" in schema:
        return sorted({kind for each in schema["anyOf"] for kind in kinds(each)})
    if "const" in schema:
        return ["constant"]
    found = schema["type"]
    return sorted(found) if isinstance(found, list) else [found]


def keys(schema, parent=""):
    """Yield each key of a schema, after that of its object, with its types: 'energy.cores? integer'."""
    for form in schema.get("anyOf", []):
        yield from keys(form, parent)
    for name, inner in schema.get("properties", {}).items():
        optional = "" if name in schema["required"] else "?"
        yield f"{parent}.{name}{optional} {' '.join(kinds(inner))}"
        yield from keys(inner, name)
    for inner in (schema.get("items"), schema.get("additionalProperties")):
        if isinstance(inner, dict):
            yield from keys(inner, parent)


def all_keys():
    listed = [f"{name} {line}" for name in schema_names() for line in keys(json_schema(name))]
    return list(dict.fromkeys(listed))


def test_no_key_is_removed_or_changed(request):
    if request.config.getoption("--update-golden"):
        KEYS.write_text("".join(f"{line}\n" for line in all_keys()))
    assert [line for line in KEYS.read_text().splitlines() if line not in set(all_keys())] == []


@pytest.mark.parametrize("name", schema_names())
def test_a_schema_is_printed(name, capsys):
    assert main([name]) == 0
    schema = json.loads(capsys.readouterr().out)
    Draft202012Validator.check_schema(schema)
    assert schema["$id"] == f"urn:mpbn_deploy:{name}:1" and schema == json_schema(name)


def test_names_are_listed_and_others_rejected(capsys):
    assert main([]) == 0
    assert capsys.readouterr().out.split() == schema_names()
    assert main(["fitt"]) == 2
    assert "no JSON schema 'fitt'. Did you mean 'fit'?" in capsys.readouterr().err


class Pair(NamedTuple):
    """Two."""

    first: int
    second: float | None


@record
class Inner(Report):
    """A part."""

    JSON = "size=long kind?"

    long: int  # how long
    kind: Literal["a", "b"] = "a"


@record
class Outer(Report):
    """The whole.

    More about it.
    """

    JSON = "parts pair size=inner.long missing?? doubled chance"

    parts: tuple[Inner, ...]
    inner: Inner
    pair: Pair | None = None
    missing: int | None = None
    chance: Annotated[float, {"maximum": 1}] = 0.5

    @property
    def doubled(self) -> dict[str, int]:
        """Twice as much."""
        return {"inner": 2 * self.inner.long}


def test_json_and_schema_derive_from_fields_and_properties():
    inner = Inner(long=3)
    found = Outer(parts=(inner,), inner=inner, pair=Pair(1, None)).to_json()
    assert found == {
        "parts": [{"size": 3, "kind": "a"}],
        "pair": {"first": 1, "second": None},
        "size": 3,
        "doubled": {"inner": 6},
        "chance": 0.5,
    }
    schema = object_schema(Outer)
    Draft202012Validator(schema).validate(found)
    assert schema["description"] == "The whole"
    assert schema["required"] == ["parts", "pair", "size", "doubled", "chance"]
    parts, size = schema["properties"]["parts"]["items"], schema["properties"]["size"]
    assert size == parts["properties"]["size"] == {"type": "integer", "description": "how long"}
    assert parts["required"] == ["size"] and parts["properties"]["kind"]["enum"] == ["a", "b"]
    assert schema["properties"]["pair"]["type"] == ["object", "null"]
    assert schema["properties"]["missing"] == {"type": "integer"}
    assert schema["properties"]["chance"] == {"type": "number", "maximum": 1}
    assert schema["properties"]["doubled"]["description"] == "Twice as much"
