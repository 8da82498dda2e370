"""What each column adds to those before it: the columns of a table made uncorrelated.

x_d less its linear regression on x_<d, in deviations of what is left. The map is triangular and, in
x_d, a shift and a scale: conditionals remain conditionals, and volumes change by a constant. To a
network the columns of a picture or a spectrum are nearly the same number again and again; it would
first have to learn to subtract them.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from aem.errors import AemError

Array = NDArray[np.float64]

# Of unit variances: a column that others determine keeps a thousandth of its deviation.
RIDGE = 1e-6
# Rows a column: with fewer, what they have in common by chance would be subtracted, too.
ENOUGH = 10


def regressions(x: Array) -> tuple[Array, Array]:
    """Slopes [D, D] of each column on those before it, and the deviations of what they leave."""
    rows, columns = x.shape
    if rows < ENOUGH * columns:
        raise AemError(
            f"whiten needs {ENOUGH} rows a column, {ENOUGH * columns} for {columns} columns, not {rows}"
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
