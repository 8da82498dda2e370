"""Anomaly detection without tuning on the labelled tables of ADBench.

Run `python -m benchmarks.accuracy.anomalies` for all tables, or name some by a part of their file
names. There are two settings: detectors are fitted to the unlabelled mix and evaluated on it, or
fitted to seven tenths of the normal rows and evaluated on all other rows. The other detectors get
standardised columns. Writes the AUROC of each detector and the means to
results/anomalies/adbench.json.

Several processes can share the work: with `--pieces FOLDER` each writes what it measured there, and
`--merge FOLDER` combines the pieces.

Two things favour our detector. Its robust fit and the scores that it combines were not fitted to
labels, but were developed with the AUROC on these tables in view. And its contamination says
whether the training rows are a mix; of the other detectors only the local outlier factor is told
so.
"""

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import IsolationForest
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import roc_auc_score
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KernelDensity, LocalOutlierFactor

from aem import AEMOutlierDetector
from aem.base.files import write_json
from aem.data.info import data_root
from aem.errors import AemError
from benchmarks.accuracy.pieces import arguments_for, merge, piece, read_pieces, write_piece
from benchmarks.places import ROOT

Array = NDArray[np.float64]
Scorer = Callable[[Array, Array], Array]  # training rows, rows to score → the lower, the odder

SHARE = 0.7  # of the normal rows to fit on
SETTINGS = ("mix", "normal rows")
BANDWIDTHS = np.geomspace(0.05, 3.0, 12)
BANDWIDTH_ROWS = 2000


def ours(train: Array, test: Array) -> Array:
    """Our detector with its defaults; its contamination says whether training rows are normal."""
    contamination = 0.1 if train is test else 0.01
    detector = AEMOutlierDetector(contamination=contamination).fit(train)
    return np.asarray(detector.score_samples(test))


def forest(train: Array, test: Array) -> Array:
    """An isolation forest with its defaults."""
    return np.asarray(IsolationForest(random_state=0).fit(train).score_samples(test))


def neighbours(train: Array, test: Array) -> Array:
    """The local outlier factor with its defaults."""
    if train is test:
        return np.asarray(LocalOutlierFactor().fit(train).negative_outlier_factor_)
    return np.asarray(LocalOutlierFactor(novelty=True).fit(train).score_samples(test))


def kernels(train: Array, test: Array) -> Array:
    """A kernel density whose width is chosen by cross-validation."""
    some = train[np.random.default_rng(0).permutation(len(train))[:BANDWIDTH_ROWS]]
    search = GridSearchCV(KernelDensity(), {"bandwidth": BANDWIDTHS}, cv=3).fit(some)
    return np.asarray(search.best_estimator_.fit(train).score_samples(test))


def mixture(train: Array, test: Array) -> Array:
    """A Gaussian mixture with the number of components that BIC prefers."""
    fits = [
        GaussianMixture(k, reg_covar=1e-3, random_state=0).fit(train)
        for k in (1, 2, 4, 8)
        if 4 * k < len(train)
    ]
    return np.asarray(min(fits, key=lambda m: m.bic(train)).score_samples(test))


METHODS: dict[str, Scorer] = {
    "aem": ours,
    "isolation forest": forest,
    "local outlier factor": neighbours,
    "kernel density": kernels,
    "gaussian mixture": mixture,
}


def tables(parts: list[str]) -> list[Path]:
    """Return the files whose names contain one of the parts."""
    found = sorted((data_root() / "adbench").glob("*.npz"))
    if not found:
        raise AemError(f"there are no tables under {data_root() / 'adbench'}")
    return [p for p in found if not parts or any(part in p.name for part in parts)]


def standardised(train: Array, test: Array) -> tuple[Array, Array]:
    """Standardise columns; constant ones stay constant."""
    shift, scale = train.mean(0), train.std(0)
    scale[scale == 0] = 1
    return (train - shift) / scale, (test - shift) / scale


def measure(path: Path, methods: list[str], asked: list[str]) -> dict[str, Any]:
    """Measure one table in the given settings."""
    file = np.load(path)
    x, y = file["X"].astype(np.float64), file["y"].astype(int)
    normal = np.flatnonzero(y == 0)
    normal = np.random.default_rng(0).permutation(normal)
    chosen = normal[: int(SHARE * len(normal))]
    rest = np.setdiff1d(np.arange(len(x)), chosen)
    settings = {"mix": (x, x, y), "normal rows": (x[chosen], x[rest], y[rest])}
    record: dict[str, Any] = {"rows": len(x), "columns": x.shape[1], "anomalies": int(y.sum())}
    for setting in asked:
        train, test, labels = settings[setting]
        record[setting], record[f"{setting}, seconds"] = {}, {}
        for method in methods:
            started = time.monotonic()
            a, b = (train, test) if method == "aem" else standardised(train, test)
            # In the mix both are the same array, by which detectors recognise the setting.
            scores = METHODS[method](a, a if setting == "mix" else b)
            seconds = time.monotonic() - started
            auroc = float(roc_auc_score(labels, -scores))
            record[setting][method] = auroc
            record[f"{setting}, seconds"][method] = round(seconds, 2)
            print(
                f"{path.stem:18s} {setting:12s} {method:20s} {auroc:.4f} {seconds:6.1f} s",
                flush=True,
            )
    return record


def mean_auroc(found: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Return the mean AUROC of each method that was run on all tables."""
    records = list(found.values())
    return {
        setting: {
            method: float(np.mean([record[setting][method] for record in records]))
            for method in METHODS
            if all(method in record.get(setting, {}) for record in records)
        }
        for setting in SETTINGS
    }


def main() -> None:
    """Measure the tables named on the command line."""
    parser = arguments_for(__doc__, METHODS, ROOT / "results" / "anomalies")
    parser.add_argument("tables", nargs="*")
    parser.add_argument("--settings", nargs="*", default=list(SETTINGS), choices=SETTINGS)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    pieces = read_pieces(arguments.merge) if arguments.merge else []
    for path in [] if arguments.merge else tables(arguments.tables):
        started = time.monotonic()
        record = measure(path, arguments.methods, arguments.settings)
        pieces.append(piece({"tables": {path.stem: record}}, time.monotonic() - started))
        if arguments.pieces:
            name = "+".join((path.stem, *arguments.settings, *arguments.methods))
            write_piece(arguments.pieces, name, pieces[-1])
    if arguments.pieces:
        return
    whole = merge(pieces)
    whole = {"task": "adbench", "mean_auroc": mean_auroc(whole["tables"]), **whole}
    for setting, by_method in whole["mean_auroc"].items():
        for method, auroc in by_method.items():
            count = f"mean of {len(whole['tables'])}"
            print(f"{count:18s} {setting:12s} {method:20s} {auroc:.4f}")
    name = "adbench" if not arguments.tables else "some"
    write_json(arguments.out / f"{name}.json", whole)


if __name__ == "__main__":
    main()
