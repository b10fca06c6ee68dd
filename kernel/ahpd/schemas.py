"""JSON Schema for people: what a value must be in words, and what is wrong with a schema itself.

The dialect is draft 2020-12 with one word more: `format: path` marks a file or folder name. Nothing here
reaches for the network, whatever a schema refers to.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

DRAFT = "https://json-schema.org/draft/2020-12/schema"


def phrase(schema: Mapping[str, Any]) -> str:
    """What a value must be, in words: the end of a sentence that begins `port must be`."""
    if "enum" in schema:
        return "one of " + ", ".join(str(value) for value in schema["enum"])
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(dict.fromkeys(phrase(choice) for choice in choices))
    kind = schema.get("type")
    if isinstance(kind, list):
        return " or ".join(phrase({**schema, "type": one}) for one in kind if one != "null")
    if kind in ("integer", "number"):
        return _number_phrase("an integer" if kind == "integer" else "a number", schema)
    if kind == "array":
        return f"a list of {_PLURALS.get(schema.get('items', {}).get('type'), 'values')}"
    if kind == "string" and "pattern" in schema:
        return f"text of the form {schema['pattern']}"
    if kind == "string" and schema.get("minLength") and "format" not in schema:
        return "text"
    return {"boolean": "true or false", "string": "text", "object": "a table"}.get(
        str(kind), "what its schema says"
    )


_PLURALS = {
    "string": "texts",
    "integer": "integers",
    "number": "numbers",
    "object": "tables",
    "boolean": "booleans",
}


def _number_phrase(noun: str, schema: Mapping[str, Any]) -> str:
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None and most is not None:
        return f"{noun} between {least} and {most}"
    if least is not None:
        return f"{noun} of at least {least}"
    return noun if most is None else f"{noun} of at most {most}"


def misfit(value: Any, schema: Mapping[str, Any]) -> tuple[str, str] | None:
    """Where a value breaks its schema (`.inner.key`, empty for all of it) and what it must be.

    `None` when it fits.
    """
    import jsonschema_rs

    try:
        validator = jsonschema_rs.Draft202012Validator(dict(schema), retriever=_no_fetching)
        error = next(iter(validator.iter_errors(value)), None)
    except (ValueError, TypeError):
        # A TOML date or time, or something else that JSON has no word for.
        return "", phrase(schema)
    if error is None:
        # JSON Schema calls 1.0 an integer; nobody who asks for one wants a float.
        wrong = isinstance(value, float) and schema.get("type") == "integer"
        return ("", phrase(schema)) if wrong else None
    where, inner = "", schema
    for step in error.instance_path:
        inner_list, inner = inner, _step_into(inner, step)
        if isinstance(step, int) and inner.get("type") == "string":
            return where, phrase(inner_list)
        where += f"[{step}]" if isinstance(step, int) else f".{step}"
    if error.instance == "" and inner.get("minLength") == 1:
        return where, "text that is not empty"
    if error.schema_path and error.schema_path[-1] == "required":
        return where, "a table with " + ", ".join(inner.get("required", ()))
    return where, phrase(inner)


def _no_fetching(uri: str) -> Any:
    # A schema is a plugin's; checking a setting must not reach for the network.
    raise ValueError(f"{uri} is not part of the schema")


def _step_into(schema: Mapping[str, Any], step: str | int) -> Mapping[str, Any]:
    inner = schema.get("items") if isinstance(step, int) else schema.get("properties", {}).get(step)
    if inner is None and isinstance(step, str):
        inner = schema.get("additionalProperties")
    return inner if isinstance(inner, Mapping) else {}


def read_value(text: str, schema: Mapping[str, Any] | None) -> Any:
    """A typed-in value: JSON when it parses and fits, else the text. Without a schema a number must read back."""
    try:
        value = json.loads(text, parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        return text
    if schema is None:
        exact = not isinstance(value, int | float) or json.dumps(value) == text.strip()
        return value if exact else text
    return text if misfit(value, schema) and not misfit(text, schema) else value


def refuse_constant(word: str) -> Any:
    """NaN and Infinity are Python's idea, not JSON's."""
    raise ValueError(word)


def bad_schema(schema: Mapping[str, Any]) -> str | None:
    """Why this is no JSON Schema of draft 2020-12; `None` when it is one."""
    import jsonschema_rs

    if schema.get("$schema", DRAFT).rstrip("#") != DRAFT:
        return f"$schema must be {DRAFT}"
    try:
        jsonschema_rs.meta.validate({**schema, "$schema": DRAFT})
        # The meta schema cannot see a pattern that does not compile or a reference to nowhere.
        jsonschema_rs.Draft202012Validator(dict(schema), retriever=_no_fetching)
    except jsonschema_rs.ValidationError as error:
        where = "/".join(str(step) for step in error.instance_path)
        return f"{where}: {error.message}" if where else str(error.message)
    except (ValueError, TypeError, jsonschema_rs.ReferencingError) as error:
        return " ".join(str(error).split())
    return None
