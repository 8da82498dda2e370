"""Standardisation of columns: minus the mean, divided by the standard deviation."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from aem.model.transforms.base import Transform


class Affine(Transform, nn.Module):
    """Standardised columns, z = (x − shift) / scale.

    It is part of a model: it moves with it to other devices and types, and its file holds it.

    Parameters
    ----------
    shift
        what is subtracted from each column, usually its mean.
    scale
        what each column is then divided by, usually its standard deviation.
    """

    shift: Tensor
    scale: Tensor

    def __init__(self, shift: Float[Tensor, " D"], scale: Float[Tensor, " D"]) -> None:
        super().__init__()
        self.register_buffer("shift", shift)
        self.register_buffer("scale", scale)

    @classmethod
    def identity(cls, features: int) -> "Affine":
        """Return the map that leaves columns as they are.

        Parameters
        ----------
        features
            D, the number of columns.
        """
        return cls(torch.zeros(features), torch.ones(features))

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """Standardise rows, in float64 up to the last rounding."""
        x = x.double()
        return ((x - self.centre(x)) / self.scale.to(x)).to(self.shift)

    def inverse(self, y: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """Map rows back to the units of the data."""
        return self.shift + self.scale * y

    def log_slopes(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """Return −log scale, whatever the row."""
        return self.log_slope.expand(x.shape)

    @property
    def log_slope(self) -> Float[Tensor, " D"]:
        """log |dz_d / dx_d|, which is the same everywhere."""
        return -self.scale.log()

    def centre(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """Return where each column is centred, given the columns before it.

        Parameters
        ----------
        x
            rows in the units of the data.
        """
        return self.shift.to(x).expand_as(x)

    @property
    def spans(self) -> Float[Tensor, "D D"]:
        """The derivative of each column of the data with respect to each z (row)."""
        return torch.diag(self.scale.double())

    @property
    def deviations(self) -> Float[Tensor, " D"]:
        """Standard deviations of the columns of the data if those of z are one and uncorrelated."""
        lengths: Tensor = torch.linalg.vector_norm(self.spans, dim=1)
        return lengths.to(self.scale)
