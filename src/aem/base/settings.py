"""Settings are frozen dataclasses, read from TOML, JSON and `--set`, and written next to every run."""

import dataclasses
import json
import tomllib
import types
import typing
from collections.abc import Collection, Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, TypeVar

from aem.errors import AemError

SEEDS = 2**31  # and room above for those that follow from one

T = TypeVar("T")


class RemovedSetting(AemError):
    """A setting that an earlier version had."""


def _types(cls: type[Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {f.name: hints[f.name] for f in dataclasses.fields(cls)}


def _require_types(config: object) -> None:
    """Refuse what a settings file could not say either; NumPy's numbers become Python's."""
    for name, kind in _types(type(config)).items():
        object.__setattr__(config, name, _convert(kind, getattr(config, name), name))


def _require_positive(config: object, *names: str) -> None:
    for name in names:
        if not getattr(config, name) > 0:
            raise AemError(f"{name} must be positive, not {getattr(config, name)}")


def _require_not_negative(config: object, *names: str) -> None:
    for name in names:
        if not getattr(config, name) >= 0:
            raise AemError(f"{name} must not be negative, not {getattr(config, name)}")


def _require_choice(config: object, name: str, choices: Collection[str]) -> None:
    value = getattr(config, name)
    if value not in choices:
        raise AemError(f"'{name}' must be one of {', '.join(choices)}, not {value!r}")


def from_mapping(cls: type[T], values: Mapping[str, Any], where: str = "") -> T:
    """Build a configuration dataclass, refusing unknown keys and values of the wrong type.

    Keys in the `REMOVED` of the dataclass are read over, if they have the value that is named there.
    """
    fields = _types(cls)
    removed: Mapping[str, Any] = getattr(cls, "REMOVED", {})
    arguments: dict[str, Any] = {}
    for key, value in values.items():
        path = f"{where}{key}"
        if key in removed:
            if value != removed[key]:
                raise RemovedSetting(
                    f"'{path}' is no longer a setting: only {removed[key]!r} is left of it, "
                    f"not {value!r}"
                )
            continue
        if key not in fields:
            raise AemError(f"unknown key '{path}'; known: {', '.join(where + k for k in fields)}")
        arguments[key] = _convert(fields[key], value, path)
    return cls(**arguments)


def _convert(kind: Any, value: Any, path: str) -> Any:
    """Check a TOML or JSON value against a field's type."""
    if dataclasses.is_dataclass(kind):
        if not isinstance(value, Mapping):
            raise AemError(f"'{path}' must be a table of keys")
        return from_mapping(typing.cast("type[Any]", kind), value, f"{path}.")
    origin = typing.get_origin(kind)
    if origin is types.UnionType:  # of a setting that may be absent
        (inner,) = (k for k in typing.get_args(kind) if k is not types.NoneType)
        return None if value is None else _convert(inner, value, path)
    if origin is Literal:
        if value not in typing.get_args(kind):
            choices = ", ".join(map(str, typing.get_args(kind)))
            raise AemError(f"'{path}' must be one of {choices}, not {value!r}")
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise AemError(f"'{path}' must be a list, not {value!r}")
        inner = typing.get_args(kind)
        kinds = [inner[0]] * len(value) if inner[-1] is Ellipsis else list(inner)
        if len(kinds) != len(value):
            raise AemError(f"'{path}' must have {len(kinds)} entries, not {len(value)}")
        return tuple(_convert(k, v, path) for k, v in zip(kinds, value, strict=True))
    if not isinstance(value, bool):
        if kind is int and isinstance(value, Integral):
            return int(value)
        if kind is float and isinstance(value, Real):
            return float(value)
    if isinstance(kind, types.GenericAlias) or not isinstance(value, kind):
        raise AemError(f"'{path}' must be of type {kind.__name__}, not {value!r}")
    if isinstance(value, bool) and kind is not bool:
        raise AemError(f"'{path}' must be of type {kind.__name__}, not {value!r}")
    return value


def to_mapping(config: Any) -> dict[str, Any]:
    """The configuration as plain nested dictionaries."""
    return dataclasses.asdict(config)


def merge(base: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """Nested dictionaries, the second laid over the first."""
    merged = dict(base)
    for key, value in override.items():
        below = merged.get(key)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            value = merge(below, value)
        merged[key] = value
    return merged


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file, or say what is wrong with it."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise AemError(f"cannot read the settings file {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise AemError(f"the settings file {path} is not valid TOML: {error}") from error


def parse_assignment(text: str) -> dict[str, Any]:
    """`train.steps=100` as {"train": {"steps": 100}}; the value is TOML, or else plain text."""
    key, separator, raw = text.partition("=")
    if not separator or not key.strip():
        raise AemError(f"'{text}' is not of the form section.key=value")
    try:
        value: Any = tomllib.loads(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError:
        value = raw
    nested: Any = value
    for part in reversed(key.strip().split(".")):
        nested = {part: nested}
    return typing.cast("dict[str, Any]", nested)


def to_toml(config: Any) -> str:
    """The configuration as TOML that can be read back; JSON's values are TOML's, table by table."""
    lines: list[str] = []
    for section, values in to_mapping(config).items():
        lines.append(f"[{section}]")
        lines.extend(f"{key} = {json.dumps(value)}" for key, value in values.items())
        lines.append("")
    return "\n".join(lines)
