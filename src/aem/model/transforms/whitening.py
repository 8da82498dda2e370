"""Whitening: each column minus its regression on earlier columns, which makes columns uncorrelated.

The residuals of x_d are divided by their standard deviation. The transform is triangular, and for given
x_<d a shift and a scale of x_d, so conditionals remain conditionals and volumes change by a constant.
The columns of a picture or a spectrum are nearly equal to each other, and without whitening a network
would first have to learn to subtract them.
"""

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from torch import Tensor

from aem.errors import AemError
from aem.model.transforms.affine import Affine
from aem.nn.rowwise import linear

Array = NDArray[np.float64]

# In units of the variance: a column that others determine keeps a thousandth of its deviation.
RIDGE = 1e-6
# Fewest rows per column; with fewer, chance correlations would be subtracted as well.
ENOUGH = 10


class Whitening(Affine):
    """Columns minus regressions on earlier columns, z_d = (x_d − centre_d(x_<d)) / scale_d.

    Parameters
    ----------
    shift
        the mean of each column.
    scale
        the deviation of what its regression leaves of each column.
    slopes
        the regressions: row d holds the slopes of column d on the columns before it.
    """

    slopes: Tensor

    def __init__(
        self,
        shift: Float[Tensor, " D"],
        scale: Float[Tensor, " D"],
        slopes: Float[Tensor, "D D"],
    ) -> None:
        super().__init__(shift, scale)
        self.register_buffer("slopes", slopes)

    @classmethod
    def identity(cls, features: int) -> "Whitening":
        """Return the map that leaves columns as they are."""
        return cls(torch.zeros(features), torch.ones(features), torch.zeros(features, features))

    def inverse(self, y: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """Map rows back to the units of the data."""
        return self.shift + linear(y.double(), self.spans).to(y)

    def centre(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """Return the regression of each column on the columns before it."""
        shift = self.shift.to(x)
        return shift + linear(x - shift, self.slopes.to(x))

    @property
    def spans(self) -> Float[Tensor, "D D"]:
        """The derivative of each column of the data with respect to each z (row)."""
        each = torch.diag(self.scale.double())
        factor = torch.eye(len(each), device=each.device) - self.slopes.double()
        solved: Tensor = torch.linalg.solve_triangular(
            factor, each, upper=False, unitriangular=True
        )
        return solved


def regressions(x: Array) -> tuple[Array, Array]:
    """Regress each column on the columns before it.

    Parameters
    ----------
    x
        training rows [B, D], at least ten per column.

    Returns
    -------
    slopes : array [D, D]
        row d holds the slopes of column d on the columns before it.
    deviations : array [D]
        standard deviation of what the regression leaves of each column.
    """
    rows, columns = x.shape
    if rows < ENOUGH * columns:
        raise AemError(
            f"'whiten' needs {ENOUGH} rows per column, {ENOUGH * columns} for {columns} columns, "
            f"not {rows}"
        )
    deviations = x.std(0)
    z = (x - x.mean(0)) / deviations
    covariance = z.T @ z / len(z) + RIDGE * np.eye(z.shape[1])
    factor = np.linalg.cholesky(covariance)
    left = np.diag(factor)
    identity = np.eye(len(left))
    slopes = identity - solve_triangular(factor / left, identity, lower=True, unit_diagonal=True)
    in_units: Array = slopes * deviations[:, None] / deviations
    return np.tril(in_units, -1), left * deviations
