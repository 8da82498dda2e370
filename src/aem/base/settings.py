"""Settings as frozen dataclasses with checked values, from TOML, JSON or `--set`."""

import dataclasses
import json
import math
import tomllib
import types
import typing
from collections.abc import Collection, Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, TypeVar

from aem.errors import AemError

SEEDS = 2**31  # and room above for those that follow from one

KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}

T = TypeVar("T")


class RemovedSetting(AemError):
    """A setting of an earlier version, with a value that is no longer supported."""


@dataclasses.dataclass(frozen=True)
class Range:
    """The numbers that a setting may have.

    Parameters
    ----------
    at_least
        the lowest number.
    above
        a number that it must exceed.
    at_most
        the highest number.
    below
        a number that it must stay below.
    """

    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None

    def holds(self, value: Any) -> bool:
        """Return whether a number, or each of several, lies within; None does.

        Parameters
        ----------
        value
            a number, a tuple of numbers, or None.
        """
        if value is None:
            return True
        if isinstance(value, tuple):
            return all(map(self.holds, value))
        return bool(
            (self.at_least is None or value >= self.at_least)
            and (self.above is None or value > self.above)
            and (self.at_most is None or value <= self.at_most)
            and (self.below is None or value < self.below)
        )

    def __str__(self) -> str:
        """Say it as a sentence goes on after "must"."""
        low = self.at_least if self.above is None else self.above
        high = self.at_most if self.below is None else self.below
        if low is not None and high is not None:
            ends = "(" if self.above is not None else "[", ")" if self.below is not None else "]"
            return f"lie in {ends[0]}{low:g}, {high:g}{ends[1]}"
        if high is not None:
            return f"be {'at most' if self.below is None else 'below'} {high:,}"
        if (self.above, self.at_least) in ((0, None), (None, 1)):
            return "be positive"
        if self.at_least == 0:
            return "not be negative"
        return f"be {'at least' if self.above is None else 'above'} {low:,}"


def setting(
    default: Any,
    help: str,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
    choices: Collection[str] = (),
    earlier: Any = dataclasses.MISSING,
) -> Any:
    """Declare a setting: a dataclass field with its default, purpose and range.

    Parameters
    ----------
    default
        its default value.
    help
        its purpose, as the reference and the command line show it.
    at_least, above, at_most, below
        the range of a number, or of each number of a tuple.
    choices
        the names it may be, where a `Literal` cannot list them.
    earlier
        the value in files that are older than the setting, if not its default.
    """
    limits = (at_least, above, at_most, below)
    allowed = None if limits == (None,) * 4 else Range(*limits)
    earlier = default if earlier is dataclasses.MISSING else earlier
    metadata = {"help": help, "range": allowed, "choices": choices, "earlier": earlier}
    return dataclasses.field(default=default, metadata=metadata)


def help_of(cls: type[Any], name: str) -> str:
    """Return the help text of a setting.

    Parameters
    ----------
    cls
        a dataclass of settings.
    name
        name of the setting.
    """
    field = next(field for field in dataclasses.fields(cls) if field.name == name)
    return str(field.metadata["help"])


class Settings:
    """Base class of settings, which checks types and ranges of all values.

    A subclass whose settings depend on each other checks this in its own `__post_init__`, after
    calling that of the base class.
    """

    def __post_init__(self) -> None:
        hints = _types(type(self))
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            name, metadata = field.name, field.metadata
            # What a settings file could not say either is refused; NumPy's numbers become Python's.
            value = _convert(hints[name], getattr(self, name), name)
            object.__setattr__(self, name, value)
            allowed, choices = metadata.get("range"), metadata.get("choices")
            if isinstance(value, float) and math.isinf(value):
                raise AemError(f"'{name}' must be a finite number, not {value}")
            if allowed is not None and not allowed.holds(value):
                raise AemError(f"'{name}' must {allowed}, not {value}")
            if choices and value not in choices:
                raise AemError(f"'{name}' must be one of {', '.join(choices)}, not {value!r}")


def _types(cls: type[Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {f.name: hints[f.name] for f in dataclasses.fields(cls)}


def from_mapping(cls: type[T], values: Mapping[str, Any], where: str = "") -> T:
    """Build a dataclass of settings, refusing unknown keys and values of the wrong type.

    Keys in the `REMOVED` of the dataclass are ignored if they have the value that is given there.

    Parameters
    ----------
    cls
        the dataclass of settings to build.
    values
        settings by name, as TOML or JSON hold them.
    where
        what stands before each key in messages, such as "train.".
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
    try:
        return cls(**arguments)
    except AemError as error:
        raise AemError(f"{where[:-1]}: {error}" if where else str(error)) from error


def _convert(kind: Any, value: Any, path: str) -> Any:
    """Check a TOML or JSON value against a field's type."""
    if dataclasses.is_dataclass(kind):
        if isinstance(value, typing.cast("type[Any]", kind)):
            return value
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
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise AemError(f"'{path}' must be {KINDS[kind]}, not {value!r}")
    return value


def to_mapping(config: Any) -> dict[str, Any]:
    """Return settings as plain nested dictionaries.

    Parameters
    ----------
    config
        a dataclass of settings.
    """
    return dataclasses.asdict(config)


def completed(config: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Complete the settings in a file by those that it does not mention.

    These were added after the file was written, and have the value that is declared for such files.

    Parameters
    ----------
    config
        a dataclass of settings, which says what there is to be set.
    values
        what the file holds.
    """
    kept = dict(values)
    for field in dataclasses.fields(config):
        inner, value = getattr(config, field.name), kept.get(field.name)
        if dataclasses.is_dataclass(inner) and isinstance(value, Mapping):
            kept[field.name] = completed(inner, value)
        elif field.name not in kept and field.default is not dataclasses.MISSING:
            kept[field.name] = field.metadata.get("earlier", field.default)
    return kept


def unusual(config: Any) -> dict[str, Any]:
    """Return the settings whose values differ from those of a file that does not mention them.

    They stay the same when a later version adds a setting.

    Parameters
    ----------
    config
        a dataclass of settings.
    """
    unset = completed(config, {})
    return {name: value for name, value in to_mapping(config).items() if value != unset[name]}


def refuse_other(
    place: Path, found: Mapping[str, Any], wanted: Mapping[str, Any], section: str = ""
) -> None:
    """Raise an error if a run was begun with other settings.

    Parameters
    ----------
    place
        file or folder of that run, for the message.
    found
        settings of that run.
    wanted
        settings of this run; further ones of `found` are ignored.
    section
        what stands before each key in the message, such as "train.".
    """
    for key, value in wanted.items():
        if found.get(key) != value:
            raise AemError(
                f"{place} was made with {section}{key} = {found.get(key)}, this run asks for {value}; "
                "choose another folder or the same settings"
            )


def merge(base: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two nested dictionaries; values of the second one replace those of the first.

    Parameters
    ----------
    base
        the values where the second has none.
    override
        the values that count.
    """
    merged = dict(base)
    for key, value in override.items():
        below = merged.get(key)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            value = merge(below, value)
        merged[key] = value
    return merged


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file, or say what is wrong with it.

    Parameters
    ----------
    path
        the settings file that the user named.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise AemError(f"cannot read the settings file {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise AemError(f"the settings file {path} is not valid TOML: {error}") from error


def parse_assignment(text: str) -> dict[str, Any]:
    """Read `train.steps=100` as {"train": {"steps": 100}}.

    Parameters
    ----------
    text
        key and value; the value is TOML, or else plain text.
    """
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
    """Return settings as TOML, with a table for each section.

    Parameters
    ----------
    config
        a dataclass of dataclasses of settings.
    """
    lines: list[str] = []
    for section, values in to_mapping(config).items():
        lines.append(f"[{section}]")
        lines.extend(f"{key} = {json.dumps(value)}" for key, value in values.items())
        lines.append("")
    return "\n".join(lines)
