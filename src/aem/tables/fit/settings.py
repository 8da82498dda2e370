"""What a user may set of an automatic fit."""

from dataclasses import dataclass

from aem.base.settings import Settings, setting


@dataclass(frozen=True)
class FitSettings(Settings):
    """What a user may set of an automatic fit; None leaves it to the data."""

    components: int | None = setting(
        None, "Gaussians of the mixture that the proposals start from.", at_least=1
    )
    hidden: int | None = setting(None, "Units of the autoregressive network.", at_least=1)
    steps: int | None = setting(
        None,
        "Training steps of the networks, at most; 0 keeps the mixture alone.",
        at_least=0,
    )
    batch_size: int | None = setting(None, "Rows per training step.", at_least=1)
    learning_rate: float | None = setting(None, "The highest learning rate.", above=0)
    dropout: float | None = setting(
        None, "Share of the units that training leaves out.", at_least=0, below=1
    )
    weight_decay: float | None = setting(None, "Decoupled weight decay.", at_least=0)
    frequencies: int | None = setting(None, "Fourier features of each value.", at_least=0)
