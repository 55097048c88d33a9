"""From a dataclass to a JSON Schema, and from JSON to its value.

Fields may be `str`, `int`, `float`, `bool`, `None`, `Literal`, lists, dicts with string keys,
unions and other dataclasses. `Annotated[int, "what it is for"]` describes a field.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

__all__ = ["NoConfig", "WrongValue", "from_json", "schema_of"]

T = TypeVar("T")

_SIMPLE = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


@dataclasses.dataclass(frozen=True)
class NoConfig:
    """A configuration without any setting."""


class WrongValue(Exception):
    """A value does not fit its type; the text says which and why."""


def schema_of(type_: type, prompts: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The JSON Schema of a dataclass, with room for tuned prompts where there are any."""
    schema = _schema(type_)
    if prompts:
        schema["properties"]["prompts"] = {
            "type": "object",
            "description": "Texts that replace the named prompts.",
            "properties": {name: {"type": "string"} for name in prompts},
            "additionalProperties": False,
        }
    return schema


def _schema(type_: Any) -> dict[str, Any]:
    if type_ in _SIMPLE:
        return {"type": _SIMPLE[type_]}
    if type_ is Any:
        return {}
    origin, arguments = get_origin(type_), get_args(type_)
    if origin is typing.Annotated:
        words = [word for word in arguments[1:] if isinstance(word, str)]
        return _schema(arguments[0]) | ({"description": " ".join(words)} if words else {})
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_schema(argument) for argument in arguments]}
    if origin is typing.Literal:
        return {"enum": list(arguments)}
    if origin is list:
        return {"type": "array", "items": _schema(arguments[0])}
    if origin is dict and arguments[0] is str:
        return {"type": "object", "additionalProperties": _schema(arguments[1])}
    if dataclasses.is_dataclass(type_):
        return _object_schema(typing.cast(type, type_))
    raise TypeError(f"{type_!r} has no JSON Schema; see the documentation of this module")


@functools.cache
def _hints(type_: type) -> dict[str, Any]:
    return get_type_hints(type_, include_extras=True)


def _object_schema(type_: type) -> dict[str, Any]:
    hints = _hints(type_)
    properties: dict[str, Any] = {}
    required: list[str] = []
    for field in dataclasses.fields(type_):
        properties[field.name] = _schema(hints[field.name])
        if field.default is not dataclasses.MISSING:
            default: Any = field.default
        elif field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        else:
            required.append(field.name)
            continue
        if dataclasses.is_dataclass(default) and not isinstance(default, type):
            default = dataclasses.asdict(default)
        properties[field.name]["default"] = default
    schema: dict[str, Any] = {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }
    if required:
        schema["required"] = required
    return schema


def from_json(type_: type[T], value: Any, what: str) -> T:
    """The value of a type that JSON stands for. `what` names it in the error."""
    return typing.cast(T, _read(type_, value, what))


def _read(type_: Any, value: Any, where: str) -> Any:
    if type_ is Any:
        return value
    if type_ is float and type(value) in (int, float) and math.isfinite(value):
        return float(value)
    if type_ in _SIMPLE:
        if type(value) is type_ and type_ is not float:
            return value
        raise WrongValue(f"{where} is {_shown(value)}; it has to be of type {_SIMPLE[type_]}")
    origin, arguments = get_origin(type_), get_args(type_)
    if origin is typing.Annotated:
        return _read(arguments[0], value, where)
    if origin in (typing.Union, types.UnionType):
        return _read_any(arguments, value, where)
    if origin is typing.Literal:
        if any(value == choice and type(value) is type(choice) for choice in arguments):
            return value
        choices = ", ".join(_shown(choice) for choice in arguments)
        raise WrongValue(f"{where} is {_shown(value)}; it has to be one of {choices}")
    if origin is list:
        if isinstance(value, list):
            return [_read(arguments[0], item, f"{where}[{i}]") for i, item in enumerate(value)]
        raise WrongValue(f"{where} is {_shown(value)}; it has to be a list")
    if not isinstance(value, dict):
        raise WrongValue(f"{where} is {_shown(value)}; it has to be an object")
    if origin is dict:
        return {key: _read(arguments[1], item, f"{where}.{key}") for key, item in value.items()}
    return _read_object(type_, value, where)


def _read_any(choices: tuple[Any, ...], value: Any, where: str) -> Any:
    problems: list[str] = []
    for choice in choices:
        try:
            return _read(choice, value, where)
        except WrongValue as problem:
            problems.append(str(problem))
    raise WrongValue("; or ".join(problems))


def _read_object(type_: type, value: dict[str, Any], where: str) -> Any:
    hints = _hints(type_)
    fields = {field.name: field for field in dataclasses.fields(type_)}
    for name in value:
        if name not in fields:
            known = ", ".join(fields) or "none"
            raise WrongValue(f"{where}.{name[:100]} is not known; there are: {known}")
    given: dict[str, Any] = {}
    for name, field in fields.items():
        if name in value:
            given[name] = _read(hints[name], value[name], f"{where}.{name}")
        elif (
            field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        ):
            raise WrongValue(f"{where}.{name} is missing")
    return type_(**given)


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:60] + "…"


def parse(
    type_: type[T], text: str, prompts: Mapping[str, str]
) -> tuple[T, dict[str, str]]:
    """The configuration and the prompts that `text`, a JSON object, gives."""
    try:
        value = json.loads(text) if text.strip() else {}
    except ValueError as problem:
        raise WrongValue(f"the configuration is not JSON: {problem}") from None
    tuned = dict(prompts)
    if prompts and isinstance(value, dict) and "prompts" in value:
        given = from_json(dict[str, str], value.pop("prompts"), "config.prompts")
        for name, prompt in given.items():
            if name not in tuned:
                known = ", ".join(tuned)
                raise WrongValue(f"config.prompts.{name[:100]} is not known; there are: {known}")
            tuned[name] = prompt
    return from_json(type_, value, "config"), tuned
