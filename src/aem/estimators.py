"""The scikit-learn face: a density and an outlier detector that fit a table without tuning.

>>> from aem import AEMDensity
>>> density = AEMDensity().fit(frame)
>>> density.score_samples(frame)  # log densities in the units of the data
>>> density.sample(1000)  # rows like these, as the same kind of frame
>>> density.explain(frame.tail(5))  # which columns make these rows unlikely
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, DensityMixin, OutlierMixin
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from aem.automatic import Fitted, Settings, fit_table, refuse_extreme
from aem.errors import AemError
from aem.explain import as_columns, explain
from aem.frames import TableError, as_frame, frame_columns, is_frame
from aem.robust import FEWEST_ROWS, fit_robustly
from aem.tablemodel import TableModel
from aem.threshold import quantile, scores_by_fold, scores_of_groups, threshold
from aem.views import Views

Array = NDArray[np.float64]


def _seed(random_state: Any) -> int:
    """A number is its own seed, so that Python and the command line make the same model."""
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


@contextmanager
def _as_table_errors() -> Iterator[None]:
    """scikit-learn's conventions ask for a ValueError."""
    try:
        yield
    except AemError as error:
        raise TableError(str(error)) from error


class _TableEstimator(BaseEstimator):  # type: ignore[misc]
    """What both estimators share: a fitted `TableModel` and the way of rows to it."""

    model_: TableModel
    n_features_in_: int

    def __init__(
        self,
        *,
        components: int | None = None,
        hidden: int | None = None,
        steps: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        dropout: float | None = None,
        weight_decay: float | None = None,
        frequencies: int | None = None,
        device: str = "auto",
        random_state: Any = 0,
    ) -> None:
        self.components = components
        self.hidden = hidden
        self.steps = steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.dropout = dropout
        self.weight_decay = weight_decay
        self.frequencies = frequencies
        self.device = device
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit to the rows of an array or a data frame; y is ignored."""
        rows, names = self._learn_columns(X)
        with _as_table_errors():
            self._take(fit_table(rows, names, **self._how()))
        return self

    def _learn_columns(self, X: Any) -> tuple[Array, list[str]]:
        """Rows to fit to, and the names of their columns, which are remembered."""
        if is_frame(X):
            names, rows = frame_columns(X)
            rows = check_array(rows, dtype=np.float64, ensure_min_samples=2, estimator=self)
            self.feature_names_in_ = np.array(names, dtype=object)
            self.n_features_in_ = len(names)
            self.frame_ = X[:0] if hasattr(X, "iloc") else X.head(0)
        else:
            rows = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
            names = [f"x{i + 1}" for i in range(rows.shape[1])]
            self.frame_ = None
        with _as_table_errors():
            refuse_extreme(rows, names)
        return rows, names

    def _how(self) -> dict[str, Any]:
        """How to fit."""
        settings = Settings(**{name: getattr(self, name) for name in Settings.__annotations__})
        return {"settings": settings, "seed": _seed(self.random_state), "device": self.device}

    def _take(self, fitted: Fitted) -> None:
        self.model_ = TableModel(fitted)
        self.discrete_ = [column.column for column in fitted.discrete]

    def _rows(self, X: Any) -> Array:
        """Rows in the order of the model's columns; a frame's are matched by name."""
        check_is_fitted(self)
        if is_frame(X) and hasattr(self, "feature_names_in_"):
            _, rows = frame_columns(X, list(self.feature_names_in_))
            checked: Array = check_array(rows, dtype=np.float64, estimator=self)
            return checked
        if is_frame(X):
            _, X = frame_columns(X)
        with warnings.catch_warnings():
            # An array has no names to match; its columns are taken in the order of the fit.
            warnings.filterwarnings("ignore", "X does not have valid feature names")
            found: Array = validate_data(self, X, dtype=np.float64, reset=False)
        return found

    def score_samples(self, X: Any) -> Array:
        """Log density of each row, in the units of the data.

        A discrete column counts with the probability of its value divided by its step.
        """
        rows = self._rows(X)
        return self.model_.score(rows).total

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Any:
        """Draw rows like those of the fit: a frame if that was one, else an array."""
        check_is_fitted(self)
        seed = _seed(random_state)
        rows = self.model_.sample(n_samples, seed)
        if self.frame_ is None:
            return rows
        return as_frame(dict(zip(self.model_.columns, rows.T, strict=True)), self.frame_)

    def explain(self, X: Any, top: int = 3) -> Any:
        """The `top` most surprising columns of each row, and what would have been likely there.

        One line a row and column: the row's label and log density; rank, name and value of the
        column; its own log density given the columns before it; its surprise (how many nats that
        lies below the average there); the median and the 90 % highest-density region of what could
        have stood there. A frame of the kind given; a dictionary of lists for an array.
        """
        rows = self._rows(X)
        labels = list(X.index) if hasattr(X, "iloc") else list(range(len(rows)))
        lines = as_columns(self.model_, rows, explain(self.model_, rows), top, labels)
        return as_frame(lines, X) if is_frame(X) else lines

    def save(self, path: str | Path) -> None:
        """Write the model as one safe file, for `aem.TableModel.load` and the command line."""
        check_is_fitted(self)
        self.model_.save(path)


class AEMDensity(DensityMixin, _TableEstimator):  # type: ignore[misc]
    """The density of a table, fitted without tuning.

    Sizes, steps, regularisation and frequencies follow from the data; whatever is given here is kept
    instead. `model_.about` tells what was chosen, and `discrete_` which columns were recognised as
    discrete. Scores are the same for a row in any batch or order.

    Parameters
    ----------
    components
        Gaussians of the mixture that the proposals start from.
    hidden
        units of the autoregressive network.
    steps
        training steps of the proposal, and again of the energies; 0 keeps the mixture alone.
    batch_size, learning_rate, dropout, weight_decay
        of that training; the energies learn at a tenth of the rate.
    frequencies
        Fourier features of each value.
    device
        "auto", "cpu" or "cuda".
    random_state
        a seed; the same table and seed give the same model.
    """

    def score(self, X: Any, y: Any = None) -> float:
        """Mean log density of the rows."""
        return float(self.score_samples(X).mean())


class AEMOutlierDetector(OutlierMixin, _TableEstimator):  # type: ignore[misc]
    """Rows are outliers if their score is among the lowest `contamination` of rows like the fitted.

    The score is the worst of three looks at a row: its log density, the same blurred by a deviation of
    each column, and the log densities of its columns by themselves, each in its own spread.

    The threshold comes from scores of rows that the scoring model has not seen, so that new rows are
    called outliers no more often than that; where this makes no difference it is exactly the share
    `contamination` of a small table's own rows.

    Outliers among the training rows must not teach the density that they are normal, so the rows
    furthest out, twice as many as there may be outliers, do not take part in the fit.
    With training rows known to be normal give a small contamination, 0.01 say.

    Parameters
    ----------
    contamination
        the share of the training rows to call outliers, in (0, 0.5].
    components, hidden, steps, batch_size, learning_rate, dropout, weight_decay
        as in `AEMDensity`.
    frequencies, device, random_state
        as in `AEMDensity`.
    """

    def __init__(
        self,
        *,
        contamination: float = 0.1,
        components: int | None = None,
        hidden: int | None = None,
        steps: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        dropout: float | None = None,
        weight_decay: float | None = None,
        frequencies: int | None = None,
        device: str = "auto",
        random_state: Any = 0,
    ) -> None:
        super().__init__(
            components=components,
            hidden=hidden,
            steps=steps,
            batch_size=batch_size,
            learning_rate=learning_rate,
            dropout=dropout,
            weight_decay=weight_decay,
            frequencies=frequencies,
            device=device,
            random_state=random_state,
        )
        self.contamination = contamination

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit to rows that may hold a share of outliers; y is ignored."""
        if not 0 < self.contamination <= 0.5:
            raise TableError(f"contamination must lie in (0, 0.5], not {self.contamination}")
        rows, names = self._learn_columns(X)
        with _as_table_errors():
            fitted, kept = fit_robustly(rows, names, self.contamination, **self._how())
        self._take(fitted)
        self.views_ = Views.of(self.model_, rows)
        if fitted.held_out.any():
            # Those held out stand for all that were kept.
            groups = [(rows[kept][fitted.held_out], kept.sum()), (rows[~kept], (~kept).sum())]
            scores = scores_of_groups(groups, self.views_.score)
            self.offset_ = quantile(*scores, self.contamination)
        else:
            seen = self.views_.score(rows)
            unseen = scores_by_fold(rows, kept, fitted) if len(rows) >= FEWEST_ROWS else seen
            self.offset_ = threshold(seen, unseen, self.contamination)
        return self

    def score_samples(self, X: Any) -> Array:
        """How normal each row is, the lower the odder: the worst of three looks (`aem.views`).

        `model_.score` gives log densities.
        """
        rows = self._rows(X)
        return self.views_.score(rows)

    def decision_function(self, X: Any) -> Array:
        """How far each row's score lies above the threshold; negative for outliers."""
        scores = self.score_samples(X)
        return scores - self.offset_

    def predict(self, X: Any) -> NDArray[np.int64]:
        """1 for inliers, −1 for outliers."""
        return np.where(self.decision_function(X) >= 0, 1, -1)
