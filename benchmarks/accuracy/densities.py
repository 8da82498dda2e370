"""Compare `AEMDensity` without tuning with a Gaussian mixture, a kernel density and a spline flow.

Run `python -m benchmarks.accuracy.densities` for all tables, or name some: `wine breast-cancer
magic gas-10k hepmass-5k miniboone-40`. No method is tuned by hand. Every method gets the same rows,
without the test rows: `AEMDensity` splits them itself, the mixture is chosen on validation rows and
fitted again on all rows, the width of the kernel is chosen by cross-validation, and the flow
(zuko's NSF) is stopped by validation rows and trains for as long as `AEMDensity` took. The two
smallest tables have five folds. Writes results/accuracy/<table>.json.

Several processes can share the work: with `--pieces FOLDER` each writes what it measured there, and
`--merge FOLDER` combines the pieces. The flow must run in the same process as `AEMDensity`, whose
training time it gets.
"""

import copy
import math
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import roc_auc_score
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict
from sklearn.neighbors import KernelDensity

from aem import AEMDensity
from aem.base.files import write_json
from aem.evaluation.side_by_side import summarise
from benchmarks.accuracy.flows import descend
from benchmarks.accuracy.pieces import arguments_for, merge, piece, read_pieces, write_piece
from benchmarks.accuracy.tables import Split, splits
from benchmarks.places import ROOT

Array = NDArray[np.float64]
Result = tuple[Array, dict[str, Any]]  # log densities of the test rows, and what was chosen

TABLES = ("wine", "breast-cancer", "magic", "gas-10k", "hepmass-5k", "miniboone-40")
TWO_SAMPLE = ("gas-10k", "magic")  # tables whose samples a classifier is asked to tell apart
COMPONENTS = (1, 2, 3, 5, 8, 12, 20, 32, 50)
RIDGES = (1e-4, 1e-2, 1e-1)
BANDWIDTHS = np.geomspace(0.03, 1.5, 20)
BANDWIDTH_ROWS = 4000
LEAST_SECONDS = 30.0  # of the flow's training: it needs longer to begin than we do


def ours(split: Split, _: float) -> Result:
    """Fit `AEMDensity` with its defaults."""
    train, validation, test = split
    estimator = AEMDensity().fit(np.concatenate((train, validation)))
    about = estimator.model_.about
    network = about["network"]
    chosen = {
        "mixture": about["mixture"],
        "discrete": estimator.discrete_,
        "network": network and {k: v for k, v in network.items() if k != "history"},
    }
    fitted = time.monotonic()
    scores = estimator.score_samples(test)
    chosen["scoring_seconds"] = round(time.monotonic() - fitted, 2)
    return scores, {**chosen, "estimator": estimator}


def mixture(split: Split, _: float) -> Result:
    """Fit a Gaussian mixture whose components, shape and ridge are chosen on validation rows."""
    train, validation, test, log_scale = _standardised(split)
    best: tuple[float, dict[str, Any]] = (-math.inf, {})
    for shape in ("full", "tied", "diag"):
        for components in COMPONENTS:
            for ridge in RIDGES:
                if 3 * components > len(train):
                    continue
                settings = {
                    "n_components": components,
                    "covariance_type": shape,
                    "reg_covar": ridge,
                    "random_state": 0,
                }
                score = GaussianMixture(**settings).fit(train).score(validation)
                best = max(best, (score, settings), key=lambda pair: pair[0])
    fitted = GaussianMixture(**best[1]).fit(np.concatenate((train, validation)))
    return fitted.score_samples(test) - log_scale, best[1]


def kernels(split: Split, _: float) -> Result:
    """Fit a kernel density whose width for standardised columns is cross-validated."""
    train, validation, test, log_scale = _standardised(split)
    rows = np.concatenate((train, validation))
    some = rows[np.random.default_rng(0).permutation(len(rows))[:BANDWIDTH_ROWS]]
    search = GridSearchCV(KernelDensity(), {"bandwidth": BANDWIDTHS}, cv=5, n_jobs=-1).fit(some)
    # The best width decreases with the number of rows.
    width = search.best_params_["bandwidth"] * (len(some) / len(rows)) ** (1 / (rows.shape[1] + 4))
    scores = KernelDensity(bandwidth=width).fit(rows).score_samples(test)
    return scores - log_scale, {"bandwidth": float(width)}


def flow(split: Split, seconds: float) -> Result:
    """Train zuko's NSF, five transforms of 128 × 128, and keep the best epoch on validation rows."""
    import zuko

    train, validation, test, log_scale = _standardised(split)
    rows, held_out, unseen = (torch.from_numpy(p).float() for p in (train, validation, test))
    torch.manual_seed(0)
    model = zuko.flows.NSF(rows.shape[1], transforms=5, hidden_features=(128, 128))
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    best, best_epoch, epoch = -math.inf, 0, 0
    state = copy.deepcopy(model.state_dict())
    limit = time.monotonic() + max(seconds, LEAST_SECONDS)
    while time.monotonic() < limit and epoch - best_epoch < 30:
        epoch += 1
        for batch in torch.randperm(len(rows)).split(256):
            descend(model, optimiser, rows[batch])
            if time.monotonic() > limit:
                break
        with torch.no_grad():
            score = float(model().log_prob(held_out).double().mean())
        if score > best:
            best, best_epoch, state = score, epoch, copy.deepcopy(model.state_dict())
    model.load_state_dict(state)
    with torch.no_grad():
        scores = torch.cat([model().log_prob(b).double() for b in unseen.split(1000)]).numpy()
    return scores - log_scale, {"best_epoch": best_epoch, "epochs": epoch}


METHODS: dict[str, Callable[[Split, float], Result]] = {
    "aem": ours,
    "gaussian mixture": mixture,
    "kernel density": kernels,
    "spline flow": flow,
}


def _standardised(split: Split) -> tuple[Array, Array, Array, float]:
    shift, scale = split[0].mean(0), split[0].std(0)
    train, validation, test = ((part - shift) / scale for part in split)
    return train, validation, test, float(np.log(scale).sum())


def told_apart(estimator: AEMDensity, test: Array) -> float:
    """Return the AUROC of a classifier that tells test rows from as many samples."""
    drawn = estimator.sample(len(test), random_state=0)
    x = np.concatenate((test, drawn))
    y = np.repeat([0, 1], len(test))
    classifier = HistGradientBoostingClassifier(random_state=0)
    scores = cross_val_predict(
        classifier, x, y, cv=KFold(5, shuffle=True, random_state=0), method="predict_proba"
    )
    return float(roc_auc_score(y, scores[:, 1]))


def measure(name: str, methods: list[str]) -> dict[str, Any]:
    """Measure all methods on one table."""
    table = splits(name)
    record: dict[str, Any] = {"task": name, "splits": len(table), "methods": {}}
    seconds = [0.0] * len(table)
    for method in methods:
        scores, settings, spent = [], [], []
        for place, split in enumerate(table):
            started = time.monotonic()
            found, chosen = METHODS[method](split, seconds[place])
            spent.append(time.monotonic() - started - chosen.get("scoring_seconds", 0.0))
            estimator = chosen.pop("estimator", None)
            if estimator is not None:
                seconds[place] = spent[-1]
                if name in TWO_SAMPLE:
                    chosen["told_apart_auroc"] = told_apart(estimator, split[2])
            scores.append(found)
            settings.append(chosen)
        summary = summarise(torch.from_numpy(np.concatenate(scores)))
        record["methods"][method] = {
            "test_log_prob": summary.mean,
            "test_log_prob_2se": summary.two_se,
            **{key: value for key, value in asdict(summary).items() if key != "mean"},
            "seconds_a_fit": round(float(np.mean(spent)), 2),
            "settings": settings,
        }
        print(
            f"{name:14s} {method:18s} {summary.mean:9.3f} ± {summary.two_se:.3f}"
            f"  median {summary.median:9.3f}  worst {summary.worst:9.1f}  {np.mean(spent):6.1f} s",
            flush=True,
        )
    return record


def main() -> None:
    """Measure the tables named on the command line."""
    parser = arguments_for(__doc__, METHODS, ROOT / "results" / "accuracy")
    parser.add_argument("tables", nargs="*", default=TABLES)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    pieces = read_pieces(arguments.merge) if arguments.merge else []
    for name in [] if arguments.merge else arguments.tables:
        started = time.monotonic()
        record = measure(name, arguments.methods)
        pieces.append(piece(record, time.monotonic() - started))
        if arguments.pieces:
            write_piece(arguments.pieces, "+".join((name, *arguments.methods)), pieces[-1])
    if arguments.pieces:
        return
    for name in dict.fromkeys(made["found"]["task"] for made in pieces):
        whole = merge([made for made in pieces if made["found"]["task"] == name])
        write_json(arguments.out / f"{name}.json", whole)


if __name__ == "__main__":
    main()
