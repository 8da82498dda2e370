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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, DensityMixin, OutlierMixin
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from aem.base.checks import refuse_extreme
from aem.base.devices import choose_device
from aem.base.frames import (
    as_frame,
    as_same_frame,
    column_labels,
    empty_frame,
    frame_columns,
    frame_dtypes,
    is_frame,
)
from aem.base.names import TableError, unnamed
from aem.base.settings import SEEDS
from aem.errors import AemError, Interrupted
from aem.tables.detector.files import MOST_CONTAMINATED, load_detector, save_detector
from aem.tables.detector.normality import Normality
from aem.tables.detector.robust import FEWEST_ROWS, fit_robustly
from aem.tables.detector.threshold import quantile, scores_by_fold, scores_of_groups, threshold
from aem.tables.files import load_single
from aem.tables.fit.automatic import FitInterrupted, fit_table
from aem.tables.fit.settings import FitSettings
from aem.tables.model import TableModel
from aem.tables.queries.explain import as_columns, explain

Array = NDArray[np.float64]

OF_NETWORKS = ("hidden", "batch_size", "learning_rate", "dropout", "weight_decay", "frequencies")


def _seed(random_state: Any) -> int:
    """Return a seed; a number is its own, so that Python and the command line make the same model."""
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
    """Turn the library's errors into a ValueError, as scikit-learn's conventions ask."""
    try:
        yield
    except TableError:
        raise
    except Interrupted as stopped:
        raise KeyboardInterrupt(str(stopped)) from None
    except AemError as error:
        raise TableError(str(error)) from error


@dataclass(kw_only=True, repr=False, eq=False)
class _TableEstimator(BaseEstimator):  # type: ignore[misc]
    """What both estimators share: a fitted `TableModel`, and how rows are brought to it."""

    components: int | None = None
    hidden: int | None = None
    steps: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    dropout: float | None = None
    weight_decay: float | None = None
    frequencies: int | None = None
    device: str = "auto"
    random_state: Any = 0

    model_: TableModel = field(init=False)
    n_features_in_: int = field(init=False)

    @_as_table_errors()
    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit to the rows of a table.

        A KeyboardInterrupt while networks are trained leaves the best model so far in the estimator.

        Parameters
        ----------
        X
            an array [B, D] or a data frame of finite numbers, with two rows at least. The names and
            the kind of a frame are remembered.
        y
            ignored; it is there for scikit-learn's pipelines.

        Returns
        -------
        AEMDensity
            the estimator itself.
        """
        how = self._how()
        rows, names = self._learn_columns(X)
        try:
            self._take(fit_table(rows, names, **how).table)
        except FitInterrupted as stopped:
            self._take(stopped.fitted.table)
            raise
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
        """Return the arguments of a fit: settings, seed and device."""
        given = {name: getattr(self, name) for name in FitSettings.__annotations__}
        return {
            "settings": FitSettings(**given),
            "seed": _seed(self.random_state),
            "device": str(self.device),
        }

    def _take(self, table: TableModel) -> None:
        self.model_ = table
        if self.frame_ is not None:
            table.dtypes = frame_dtypes(self.frame_)
        self.discrete_ = [column.column for column in table.discrete]
        determined = table.about["determined"]
        if determined:
            warnings.warn(
                f"almost exact functions of the columns before them: {', '.join(determined)}; how "
                "narrow a density a model may have decides their part of a score, so consider leaving "
                "them out",
                stacklevel=4,
            )
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
        """Return the log density of each row, in nats and in the units of the data.

        A discrete column counts with the probability of its value divided by its step. A score
        depends on no other row.

        Parameters
        ----------
        X
            rows: an array with the columns of the fit in their order, or a data frame, matched by
            name.
        """
        rows = self._rows(X)
        return self.model_.score(rows).total

    @_as_table_errors()
    def sample(self, n_samples: int = 1, random_state: Any = None) -> Any:
        """Draw rows like those of the fit: a frame if that was one, with its types, else an array.

        Parameters
        ----------
        n_samples
            how many rows.
        random_state
            a seed, or a `numpy.random.RandomState`; None takes a seed at random.
        """
        check_is_fitted(self)
        seed = _seed(random_state)
        rows = self.model_.sample(n_samples, seed)
        if self.frame_ is None:
            return rows
        labels = column_labels(self.frame_).values()
        return as_same_frame(dict(zip(labels, rows.T, strict=True)), self.frame_)

    @_as_table_errors()
    def explain(self, X: Any, top: int = 3) -> Any:
        """Return the most surprising columns of each row, and what would have been likely there.

        There is one line per row and column: the row's label and log density; rank, name and value
        of the column; its own log density given the columns before it; its surprise (how many nats
        that lies below the average there); the median and the 90 % highest-density region of what
        could have stood there.

        Parameters
        ----------
        X
            rows: an array with the columns of the fit in their order, or a data frame, matched by
            name.
        top
            how many columns of each row, the most surprising first.

        Returns
        -------
        frame or dict of lists
            a frame of the kind given; a dictionary of lists for an array.
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
        """Write one safe file, for `load`, `aem.TableModel.load` and the command line.

        Parameters
        ----------
        path
            the file to write, whole or not at all; models usually end in .aem.
        """
        check_is_fitted(self)
        self.model_.save(path)

    def _remember(self, table: TableModel) -> None:
        """Set the attributes that a fit would have set.

        A file does not say which kind of frame the model was fitted to.
        """
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
        Gaussians of the mixture that the proposals start from; without a number a few sizes are
        compared on held-out rows.
    hidden
        units of the autoregressive network.
    steps
        training steps of the networks, at most; 0 keeps the mixture alone.
    batch_size
        rows per training step.
    learning_rate
        the highest learning rate.
    dropout
        share of the units that training leaves out.
    weight_decay
        decoupled weight decay of the networks.
    frequencies
        Fourier features of each value.
    device
        where networks are trained: "auto" (a GPU if there is one), "cpu" or "cuda".
    random_state
        a seed; the same table and seed give the same model.

    Examples
    --------
    >>> import numpy as np
    >>> from aem import AEMDensity
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=300)
    >>> table = np.column_stack((x, x**2 + 0.1 * rng.normal(size=300)))
    >>> density = AEMDensity().fit(table)
    >>> likely, unlikely = density.score_samples([[1, 1], [1, -1]])
    >>> bool(likely > unlikely + 10)
    True
    >>> density.explain([[1, -1]], top=1)["column"]
    ['x2']
    >>> density.sample(1000).shape
    (1000, 2)
    """

    def score(self, X: Any, y: Any = None) -> float:
        """Return the mean log density of rows, in nats per row.

        Parameters
        ----------
        X
            rows: an array with the columns of the fit in their order, or a data frame, matched by
            name.
        y
            ignored; it is there for scikit-learn's pipelines.
        """
        return float(self.score_samples(X).mean())

    @classmethod
    @_as_table_errors()
    def load(cls, path: str | Path, device: str = "auto") -> Self:
        """Read a density from the file of any model of a table.

        Samples come back as arrays: a file does not know what kind of frame the rows came from.

        Parameters
        ----------
        path
            what `save` or `aem fit` wrote.
        device
            "auto" (a GPU if there is one), "cpu" or "cuda".
        """
        density = cls(device=device)
        density._remember(load_single(path, choose_device(device)))
        return density


@dataclass(kw_only=True, repr=False, eq=False)
class AEMOutlierDetector(OutlierMixin, _TableEstimator):  # type: ignore[misc]
    """Detects rows with lower scores than all but a share `contamination` of rows like the fitted.

    The score is the worst of three views of a row: its log density, the same blurred by one
    standard deviation of each column, and the log densities of its columns by themselves, each
    measured in its own spread.

    The threshold comes from scores of rows that the scoring model has not seen, so that new rows
    are called outliers no more often than that; where this makes no difference it is exactly the
    share `contamination` of a small table's own rows.

    The density is fitted to central rows, so that outliers among the training rows do not influence
    it: the rows furthest out, twice as many as there may be outliers, do not take part in the fit.
    With training rows known to be normal give a small contamination, 0.01 say.

    Networks adapt to whatever rows there are, outliers included. So with a contamination of 0.05 or
    more none is trained, whatever the size of the table, unless `steps` is given: the density is a
    mixture, and settings of a network make no difference, which a warning says.

    Parameters
    ----------
    contamination
        the share of the training rows to call outliers, in (0, 0.5].
    components
        Gaussians of the mixture that the proposals start from; without a number a few sizes are
        compared on held-out rows, none so large that outliers alone could fill a component.
    hidden
        units of the autoregressive network, where one is trained.
    steps
        training steps of the networks, at most; 0 keeps the mixture alone.
    batch_size
        rows per training step.
    learning_rate
        the highest learning rate.
    dropout
        share of the units that training leaves out.
    weight_decay
        decoupled weight decay of the networks.
    frequencies
        Fourier features of each value.
    device
        where networks are trained: "auto" (a GPU if there is one), "cpu" or "cuda".
    random_state
        a seed; the same table and seed give the same detector.

    Examples
    --------
    >>> import numpy as np
    >>> from aem import AEMOutlierDetector
    >>> table = np.random.default_rng(0).normal(size=(100, 2))
    >>> AEMOutlierDetector().fit(table).predict([[0, 0], [9, 9]])
    array([ 1, -1])
    """

    contamination: float = 0.1

    @_as_table_errors()
    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit to the rows of a table, a share of which may be outliers, and find the threshold.

        Parameters
        ----------
        X
            an array [B, D] or a data frame of finite numbers, with two rows at least. The names and
            the kind of a frame are remembered.
        y
            ignored; it is there for scikit-learn's pipelines.

        Returns
        -------
        AEMOutlierDetector
            the estimator itself.
        """
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
        """Return how normal each row is, the lower the odder.

        It is the worst of three views, see `aem.tables.detector.normality`; `model_.score` gives
        log densities.

        Parameters
        ----------
        X
            rows: an array with the columns of the fit in their order, or a data frame, matched by
            name.
        """
        rows = self._rows(X)
        return self.normality_.score(rows)

    @_as_table_errors()
    def save(self, path: str | Path) -> None:
        """Write one safe file, for `load`; `aem.TableModel.load` and commands read its density.

        Parameters
        ----------
        path
            the file to write, whole or not at all; models usually end in .aem.
        """
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
            "auto" (a GPU if there is one), "cpu" or "cuda".
        """
        normality, threshold, contamination = load_detector(path, choose_device(device))
        detector = cls(device=device, contamination=contamination)
        detector._remember(normality.table)
        detector.normality_, detector.offset_ = normality, threshold
        return detector

    def decision_function(self, X: Any) -> Array:
        """Return how far each row's score lies above the threshold; negative for outliers.

        Parameters
        ----------
        X
            rows: an array with the columns of the fit in their order, or a data frame, matched by
            name.
        """
        scores = self.score_samples(X)
        return scores - self.offset_

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Return 1 for each inlier and −1 for each outlier.

        Parameters
        ----------
        X
            rows: an array with the columns of the fit in their order, or a data frame, matched by
            name.
        """
        return np.where(self.decision_function(X) >= 0, 1, -1)
