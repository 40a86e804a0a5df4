"""Check JSON against the schemas of the package, without keys that they do not describe."""

from jsonschema import Draft202012Validator

from mpbn_deploy.schemas import json_schema


def check_json(name, data):
    """Fail unless `data` follows a schema and has no other keys."""
    schema = json_schema(name)
    Draft202012Validator.check_schema(schema)
    problems = [
        f"{error.json_path}: {error.message}"
        for error in Draft202012Validator(closed(schema)).iter_errors(data)
    ]
    advice = "keys derive from the records (base/records.py); keep the old ones"
    assert not problems, "\n".join([advice, *problems])


def closed(schema):
    """Return a schema that allows no keys but those it describes."""
    match schema:
        case dict():
            inner = {key: closed(value) for key, value in schema.items()}
            return inner | ({"additionalProperties": False} if _open_object(schema) else {})
        case list():
            return [closed(item) for item in schema]
    return schema


def _open_object(schema):
    return isinstance(schema.get("properties"), dict) and "additionalProperties" not in schema
