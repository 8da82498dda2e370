"""Configuration is data: frozen dataclasses, read from TOML and written next to every run."""

import dataclasses
import json
import tomllib
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, TypeVar

from aem.errors import AemError

T = TypeVar("T")


@dataclass(frozen=True)
class ModelConfig:
    """Shapes and forms of the networks. `features` and `context_features` follow from the data."""

    features: int = 0
    context_features: int = 0
    # Whether the networks see columns less their regressions on those before (`aem.whitening`).
    whiten: bool = False
    # autoregressive network
    network: Literal["resmade", "transformer"] = "resmade"
    hidden: int = 256
    blocks: int = 4
    activation: Literal["relu", "tanh"] = "relu"  # of ResMADE
    dropout: float = 0.0
    gamma: int = 64  # width of the context vector γ
    # energy network
    energy: Literal["relative", "literal"] = "relative"
    # What the energy network sees of a scalar: its value, or that relative to its own proposal, in
    # deviations from the mean. The first sees structure at fixed places, the second at any scale.
    energy_input: Literal["value", "residual"] = "value"
    energy_hidden: int = 128
    energy_blocks: int = 4
    energy_activation: Literal["relu", "tanh"] = "relu"
    energy_dropout: float = 0.0
    # proposal
    proposal: Literal["mixture", "anchored", "uniform"] = "mixture"
    components: int = 10
    min_scale: float = 1e-3
    bounds: tuple[tuple[float, float], ...] = ()  # uniform proposal: (low, high) a column
    # Fourier features of each scalar, 0 for none; their frequencies come from the data
    frequencies: int = 8
    # Whether the autoregressive network reads them as well, or the bare values of the past: with
    # many columns the features of all of them are much to overfit with.
    fourier_past: bool = True
    # (origin, step) a column: values lie on origin + step · k, a step of zero means anywhere
    lattice: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        _require_types(self)
        _require_positive(self, "hidden", "gamma", "energy_hidden", "components", "min_scale")
        _require_not_negative(
            self, "features", "context_features", "blocks", "energy_blocks", "frequencies"
        )
        for name in ("dropout", "energy_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise AemError(f"{name} must lie in [0, 1), not {getattr(self, name)}")
        if self.proposal == "uniform" and not self.bounds:
            raise AemError("proposal 'uniform' needs bounds, a (low, high) pair for each column")
        if self.whiten and (self.proposal == "uniform" or self.lattice):
            raise AemError(
                "whiten needs columns without bounds or steps of their own: with a uniform proposal "
                "or a lattice there is nothing to whiten"
            )
        if self.energy_input == "residual" and self.proposal == "uniform":
            raise AemError("energy_input 'residual' needs a proposal that varies, not 'uniform'")


@dataclass(frozen=True)
class TrainConfig:
    """How a model is fitted."""

    steps: int = 3000
    batch_size: int = 256
    learning_rate: float = 1e-3
    # Steps in which the learning rate rises to that; a Transformer's first ones are rough.
    rise: int = 0
    warmup: int = 0  # steps that train the proposal alone
    nodes: int = 20  # S
    estimator: Literal["importance", "ranking"] = "ranking"
    stratified: bool = True
    averaging: float = 0.999  # decay of the weight average; 0 for none
    clip: float = 5.0  # largest gradient norm; 0 for none
    weight_decay: float = 0.0
    validate_every: int = 500
    patience: int = 0  # validations without improvement before stopping; 0 for never
    seed: int = 0
    device: str = "auto"
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    # A Transformer's blocks through torch.compile: a wait, then faster steps.
    compiled: bool = False
    checkpoint_seconds: float = 30.0

    def __post_init__(self) -> None:
        _require_types(self)
        _require_positive(self, "steps", "batch_size", "learning_rate", "validate_every")
        _require_not_negative(
            self, "rise", "warmup", "clip", "weight_decay", "patience", "checkpoint_seconds", "seed"
        )
        if self.rise >= self.steps:
            raise AemError(
                f"the learning rate cannot rise for {self.rise} of {self.steps} steps: "
                "train for more, or set rise"
            )
        if self.nodes < 2:
            raise AemError(f"nodes must be at least 2, not {self.nodes}")
        if not 0 <= self.averaging < 1:
            raise AemError(f"averaging must lie in [0, 1), not {self.averaging}")


@dataclass(frozen=True)
class TaskConfig:
    """Which data, and how many rows of it (synthetic tasks draw what they are asked for)."""

    name: str = "spirals"
    image: str = ""  # picture of the image task; empty: the one that ships
    train_rows: int = 1_000_000
    validation_rows: int = 10_000
    test_rows: int = 100_000

    def __post_init__(self) -> None:
        _require_types(self)
        _require_positive(self, "train_rows", "validation_rows", "test_rows")


@dataclass(frozen=True)
class ExperimentConfig:
    """One run: task, model and training."""

    task: TaskConfig = field(default_factory=TaskConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)


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


def from_mapping(cls: type[T], values: Mapping[str, Any], where: str = "") -> T:
    """Build a configuration dataclass, refusing unknown keys and values of the wrong type."""
    fields = _types(cls)
    arguments: dict[str, Any] = {}
    for key, value in values.items():
        path = f"{where}{key}"
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
