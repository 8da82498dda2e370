"""The scikit-learn face: a density and an outlier detector that fit a table without tuning.

>>> from aem import AEMDensity
>>> density = AEMDensity().fit(frame)
>>> density.score_samples(frame)  # log densities in the units of the data
>>> density.sample(1000)  # rows like these, as the same kind of frame
>>> density.explain(frame.tail(5))  # which columns make these rows unlikely
"""

import math
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

from aem.base.checks import refuse_extreme
from aem.base.devices import choose_device
from aem.base.frames import as_frame, column_labels, empty_frame, frame_columns, is_frame
from aem.base.names import TableError, unnamed
from aem.base.settings import SEEDS
from aem.errors import AemError
from aem.tables.detector.files import MOST_CONTAMINATED, load_detector, save_detector
from aem.tables.detector.normality import Normality
from aem.tables.detector.robust import FEWEST_ROWS, fit_robustly
from aem.tables.detector.threshold import quantile, scores_by_fold, scores_of_groups, threshold
from aem.tables.files import load_single
from aem.tables.fit.automatic import fit_table
from aem.tables.fit.settings import FitSettings
from aem.tables.model import TableModel
from aem.tables.queries.explain import as_columns, explain

Array = NDArray[np.float64]

OF_NETWORKS = ("hidden", "batch_size", "learning_rate", "dropout", "weight_decay", "frequencies")


def _seed(random_state: Any) -> int:
    """A number is its own seed, so that Python and the command line make the same model."""
    if not isinstance(random_state, int | np.integer):
        return int(check_random_state(random_state).randint(2**31 - 1))
    if not 0 <= random_state < SEEDS:
        raise TableError(f"'random_state' must lie between 0 and {SEEDS - 1:,}, not {random_state}")
    return int(random_state)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _is_finite(value: Any) -> bool:
    return _is_whole(value) or (isinstance(value, float | np.floating) and math.isfinite(value))


@contextmanager
def _as_table_errors() -> Iterator[None]:
    """scikit-learn's conventions ask for a ValueError."""
    try:
        yield
    except TableError:
        raise
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

    @_as_table_errors()
    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit to the rows of an array or a data frame; y is ignored."""
        how = self._how()
        rows, names = self._learn_columns(X)
        self._take(fit_table(rows, names, **how).table)
        return self

    def _learn_columns(self, X: Any) -> tuple[Array, list[str]]:
        """Rows to fit to, and the names of their columns, which are remembered."""
        if is_frame(X):
            names, rows = frame_columns(X)
            rows = check_array(rows, dtype=np.float64, ensure_min_samples=2, estimator=self)
            self.feature_names_in_ = np.array(names, dtype=object)
            self.n_features_in_ = len(names)
            self.frame_ = empty_frame(X)
        else:
            rows = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
            names = unnamed(rows.shape[1])
            self.frame_ = None
        refuse_extreme(rows, names)
        return rows, names

    def _how(self) -> dict[str, Any]:
        """How to fit."""
        given = {name: getattr(self, name) for name in FitSettings.__annotations__}
        return {
            "settings": FitSettings(**given),
            "seed": _seed(self.random_state),
            "device": str(self.device),
        }

    def _take(self, table: TableModel) -> None:
        self.model_ = table
        self.discrete_ = [column.column for column in table.discrete]
        idle = [name for name in OF_NETWORKS if getattr(self, name) is not None]
        if idle and self.steps is None and table.about["network"] is None:
            warnings.warn(
                f"no network was trained, so {', '.join(idle)} made no difference: "
                "give steps to train one whatever the table",
                stacklevel=4,
            )

    def _rows(self, X: Any) -> Array:
        """Rows in the order of the model's columns; a frame's are matched by name."""
        check_is_fitted(self)
        if is_frame(X) and hasattr(self, "feature_names_in_"):
            _, rows = frame_columns(X, list(self.feature_names_in_))
            checked: Array = check_array(rows, dtype=np.float64, estimator=self)
            return checked
        if is_frame(X):
            _, X = frame_columns(X, unnamed(self.n_features_in_))
        with warnings.catch_warnings():
            # An array has no names to match; its columns are taken in the order of the fit.
            warnings.filterwarnings("ignore", "X does not have valid feature names")
            found: Array = validate_data(self, X, dtype=np.float64, reset=False)
        return found

    @_as_table_errors()
    def score_samples(self, X: Any) -> Array:
        """Log density of each row, in the units of the data.

        A discrete column counts with the probability of its value divided by its step.
        """
        rows = self._rows(X)
        return self.model_.score(rows).total

    @_as_table_errors()
    def sample(self, n_samples: int = 1, random_state: Any = None) -> Any:
        """Draw rows like those of the fit: a frame if that was one, else an array."""
        check_is_fitted(self)
        seed = _seed(random_state)
        rows = self.model_.sample(n_samples, seed)
        if self.frame_ is None:
            return rows
        labels = column_labels(self.frame_).values()
        return as_frame(dict(zip(labels, rows.T, strict=True)), self.frame_)

    @_as_table_errors()
    def explain(self, X: Any, top: int = 3) -> Any:
        """The `top` most surprising columns of each row, and what would have been likely there.

        One line a row and column: the row's label and log density; rank, name and value of the
        column; its own log density given the columns before it; its surprise (how many nats that
        lies below the average there); the median and the 90 % highest-density region of what could
        have stood there. A frame of the kind given; a dictionary of lists for an array.
        """
        rows = self._rows(X)
        if not _is_whole(top) or top < 1:
            raise TableError(f"'top' must be a positive whole number of columns, not {top!r}")
        labels = list(X.index) if hasattr(X, "iloc") else list(range(len(rows)))
        lines = as_columns(self.model_, rows, explain(self.model_, rows), int(top), labels)
        if not is_frame(X):
            return lines
        named = column_labels(X)
        lines["column"] = [named.get(name, name) for name in lines["column"]]
        return as_frame(lines, X)

    @_as_table_errors()
    def save(self, path: str | Path) -> None:
        """Write one safe file, for `load`, `aem.TableModel.load` and the command line."""
        check_is_fitted(self)
        self.model_.save(path)

    def _remember(self, table: TableModel) -> None:
        """Know what a fit would have known; of a file nobody can tell which kind of frame it was."""
        self.model_ = table
        self.discrete_ = [column.column for column in table.discrete]
        self.n_features_in_ = len(table.columns)
        if list(table.columns) != unnamed(len(table.columns)):
            self.feature_names_in_ = np.array(table.columns, dtype=object)
        self.frame_ = None


class AEMDensity(DensityMixin, _TableEstimator):  # type: ignore[misc]
    """The density of a table, fitted without tuning.

    Sizes, steps, regularisation and frequencies follow from the data; whatever is given here is kept
    instead. A table of fewer than 2000 rows gets a mixture alone, no network, unless `steps` is given:
    settings of a network make no difference there, and a warning says so. `model_.about` tells what
    was chosen, and `discrete_` which columns were recognised as discrete. Scores are the same for a
    row in any batch or order.

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

    @classmethod
    @_as_table_errors()
    def load(cls, path: str | Path, device: str = "auto") -> Self:
        """Read a density from the file of any model of a table.

        Parameters
        ----------
        path
            what `save` or `aem fit` wrote.
        device
            "auto", "cpu" or "cuda".

        Samples come back as arrays: a file does not know what kind of frame the rows came from.
        """
        density = cls(device=device)
        density._remember(load_single(path, choose_device(device)))
        return density


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

    Networks follow whatever is there, outliers too. So with a contamination of 0.05 or more none is
    trained, whatever the size of the table, unless `steps` is given: the density is a mixture, and
    settings of a network make no difference, which a warning says.

    Parameters
    ----------
    contamination
        the share of the training rows to call outliers, in (0, 0.5].
    components, steps, device, random_state
        as in `AEMDensity`.
    hidden, batch_size, learning_rate, dropout, weight_decay, frequencies
        as in `AEMDensity`, where a network is trained.
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

    @_as_table_errors()
    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit to rows that may hold a share of outliers; y is ignored."""
        if not _is_finite(self.contamination) or not 0 < self.contamination <= MOST_CONTAMINATED:
            raise TableError(f"'contamination' must lie in (0, 0.5], not {self.contamination!r}")
        how = self._how()
        rows, names = self._learn_columns(X)
        fitted, kept = fit_robustly(rows, names, self.contamination, **how)
        self._take(fitted.table)
        self.normality_ = Normality.of(self.model_, rows)
        if fitted.held_out.any():
            # Those held out stand for all that were kept.
            groups = [(rows[kept][fitted.held_out], kept.sum()), (rows[~kept], (~kept).sum())]
            scores = scores_of_groups(groups, self.normality_.score)
            self.offset_ = quantile(*scores, self.contamination)
        else:
            seen = self.normality_.score(rows)
            unseen = scores_by_fold(rows, kept, self.model_) if len(rows) >= FEWEST_ROWS else seen
            self.offset_ = threshold(seen, unseen, self.contamination)
        return self

    @_as_table_errors()
    def score_samples(self, X: Any) -> Array:
        """How normal each row is, the lower the odder.

        It is the worst of three looks, see `aem.tables.detector.normality`; `model_.score` gives log
        densities.
        """
        rows = self._rows(X)
        return self.normality_.score(rows)

    @_as_table_errors()
    def save(self, path: str | Path) -> None:
        """Write one safe file, for `load`; `aem.TableModel.load` and commands read its density."""
        check_is_fitted(self)
        save_detector(self.normality_, self.offset_, float(self.contamination), path)

    @classmethod
    @_as_table_errors()
    def load(cls, path: str | Path, device: str = "auto") -> Self:
        """Read a detector with its threshold.

        Parameters
        ----------
        path
            what `save` wrote.
        device
            "auto", "cpu" or "cuda".
        """
        normality, threshold, contamination = load_detector(path, choose_device(device))
        detector = cls(device=device, contamination=contamination)
        detector._remember(normality.table)
        detector.normality_, detector.offset_ = normality, threshold
        return detector

    def decision_function(self, X: Any) -> Array:
        """How far each row's score lies above the threshold; negative for outliers."""
        scores = self.score_samples(X)
        return scores - self.offset_

    def predict(self, X: Any) -> NDArray[np.int64]:
        """1 for inliers, −1 for outliers."""
        return np.where(self.decision_function(X) >= 0, 1, -1)
