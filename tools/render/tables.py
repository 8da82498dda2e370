"""The tables of experiments on real data and of what was tried for them, from results/*.json."""

import json
from collections.abc import Iterator, Mapping
from statistics import mean, stdev
from typing import Any

from aem.paper.published import GAUSSIAN, LATER, TABLE_1, with_spread
from tools.render.pages import markdown, result

SMALL = ("gas-10k", "hepmass-5k", "miniboone-40")
FULL = ("power", "power-maf", "gas", "hepmass", "miniboone", "bsds300")
HEADLINES = {"power-maf": "POWER", "miniboone": "MINIBOONE", "bsds300": "BSDS300"}
RIVALS = {
    "aem": "AEM, `best`",
    "nsf": "neural spline flow",
    "gaussian_mixture": "Gaussian mixture",
    "kde": "kernel density",
}
SCORES = {
    "proposal": "proposal",
    "kde": "AEM-KDE",
    "importance": "AEM, importance sampling",
    "quadrature": "AEM, quadrature",
}


def _number(value: float | None, form: str = ".3f") -> str:
    return "" if value is None else format(value, form)


def _published(model: str, column: str) -> str:
    """A score of the paper's table 1."""
    (scores,) = (row.scores for row in TABLE_1 if row.model == model)
    return with_spread(*scores[column])


def small_tables() -> str:
    """Four models of each small table, trained on the same rows."""
    rows = []
    for table in SMALL:
        record = result(f"small_tables/{table}")
        if record is None:
            continue
        best = max(m["test_mean"] for m in record["models"].values() if m["test_mean"] is not None)
        for name, label in RIVALS.items():
            found = record["models"][name]
            mean = f"{_number(found['test_mean'])} ± {_number(found['test_two_se'])}"
            rows.append(
                [
                    table,
                    label,
                    f"**{mean}**" if found["test_mean"] == best else mean,
                    _number(found.get("test_error"), ".0e"),
                    _number(found["test_median"]),
                    _number(found["test_worst"], ".1f"),
                ]
            )
    header = ["table", "model", "test log-likelihood ± 2 s.e.", "error", "median", "worst row"]
    return markdown(header, rows, "No run is recorded yet.")


def full_tables() -> str:
    """All scores of the full tables' test rows, preset by preset."""
    rows = []
    for table in FULL:
        for preset in ("paper", "best"):
            record = result(f"{table}/{preset}")
            if record is None:
                continue
            for name, label in SCORES.items():
                found = record["test"][name]
                if found:
                    rows.append(_score_row(record, table, preset, label, found))
    header = ["table", "preset", "score", "mean ± 2 s.e.", "error", "median", "worst row", "rows"]
    return markdown([*header, "all rows (estimate)"], rows, "No run is recorded yet.")


def beside_published() -> str:
    """The paper's scores beside ours, with the paper's settings and with our own."""
    rows = []
    for table, column in HEADLINES.items():
        paper, best = result(f"{table}/paper"), result(f"{table}/best")
        if paper is None and best is None:
            continue
        scored = [row for row in (*TABLE_1, *LATER) if column in row.scores]
        highest = max(scored, key=lambda row: row.scores[column][0])
        rows.append(
            [
                column,
                _published("ResMADE-MoG (proposal)", column),
                _published("AEM, 20,000 samples", column),
                _proposal(paper),
                _exact(paper),
                f"**{_exact(best)}**" if best else "not run",
                _gain(best),
                _rows_scored(paper, best),
                f"{highest.scores[column][0]:.2f} ({highest.model})",
            ]
        )
    header = ["table", "proposal, published", "AEM, published", "proposal, `paper`", "AEM, `paper`"]
    header += ["AEM, `best`", "gain of the energy, `best`", "test rows scored: `paper`, `best`"]
    return markdown([*header, "highest published known to us"], rows, "No run is recorded yet.")


def _proposal(record: Mapping[str, Any] | None) -> str:
    if record is None:
        return "not run"
    proposal = record["test"]["proposal"]
    return with_spread(proposal["mean"], proposal["two_se"])


def _exact(record: Mapping[str, Any] | None) -> str:
    """By quadrature, of the whole split."""
    if record is None:
        return "not run"
    exact = record["test"]["quadrature"]
    return f"{exact['whole_split']:.2f} ± {exact['whole_split_2se']:.2f}"


def _gain(record: Mapping[str, Any] | None) -> str:
    """Return the mean log density that the energy adds to the proposal."""
    return "" if record is None else f"{record['test']['quadrature']['above_proposal']:.2f}"


def _rows_scored(*records: Mapping[str, Any] | None) -> str:
    """How many test rows each run's quadrature saw; the rest is estimated by the proposal."""
    known = [record for record in records if record is not None]
    seen = [f"{r['test']['quadrature']['rows']:,}" if r else "–" for r in records]
    return f"{', '.join(seen)} of {known[0]['test']['rows']:,}"


def _score_row(
    record: Mapping[str, Any], table: str, preset: str, label: str, found: Mapping[str, Any]
) -> list[str]:
    whole = _number(found.get("whole_split"))
    return [
        table,
        preset,
        label,
        f"{_number(found.get('mean'))} ± {_number(found.get('two_se'))}",
        _number(found.get("error"), ".0e"),
        _number(found.get("median")),
        _number(found.get("worst"), ".1f"),
        f"{found['rows']:,} of {record['test']['rows']:,}",
        f"{whole} ± {_number(found.get('whole_split_2se'))}" if whole else "",
    ]


def _flat(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for section, values in config.items():
        if section in ("task", "model", "train", "ensemble"):
            yield from ((f"{section}.{key}", value) for key, value in values.items())


def models_of_maf() -> str:
    """Scores of MAF's simplest models, and how they depend on the validation pictures."""
    record, made = result("experiments/gaussian"), result("experiments/made")
    if record is None or made is None:
        return (
            "Not measured yet: `benchmarks/claims/gaussian.py` and `benchmarks/claims/made.py`.\n"
        )
    rows = []
    for name, column in (("power-maf", "POWER"), ("bsds300", "BSDS300")):
        found, published = record["tables"][name], with_spread(*GAUSSIAN.scores[column])
        ours = with_spread(found["test"], found["test_2se"])
        rows.append([f"Gaussian, {column} as loaded", published, ours, ""])
    published = _published("MADE-MoG", "BSDS300")
    ours = with_spread(made["test"], made["test_2se"])
    validation = f"{made['best']['best_validation_log_prob']:.2f}"
    rows.append(["MADE-MoG, BSDS300 as loaded", published, ours, validation])
    splits = record["splits"]
    for name, label in (("even", "every tenth picture"), ("first", "the first draw's pictures")):
        numbers = [f"{splits[name][part]:.2f}" for part in ("test", "validation")]
        rows.append([f"Gaussian, BSDS300, {label} validating", "", *numbers])
    drawn = [
        f"{mean(values):.2f}, deviation {stdev(values):.2f}"
        for values in ([s[part] for s in splits["random"]] for part in ("test", "validation"))
    ]
    choices = f"{len(splits['random'])} random choices"
    rows.append([f"Gaussian, BSDS300, mean of {choices}", "", *drawn])
    return markdown(["model and rows", "test, MAF's", "test, ours", "validation, ours"], rows)


def _validation(training: Mapping[str, Any]) -> list[str]:
    """The best score and the last, each with its step."""
    last = training["history"][-1]
    return [
        f"{training['best_validation_log_prob']:.2f} at {training['best_step']:,}",
        f"{last['validation_log_prob']:.2f} at {last['step']:,}",
    ]


def paper_on_bsds300() -> str:
    """The paper's settings, run several times on patches of the same pictures."""
    runs = {
        "bsds300/paper": "`paper`",
        "experiments/bsds300-stopped": "`paper`, stopped early",
        "experiments/bsds300-as-they-are": "`paper` with patches as they are",
        "experiments/bsds300-first-draw": "`paper` on the first draw",
    }
    rows = []
    for name, label in runs.items():
        record = result(name)
        if record is None:
            continue
        (training,) = record["training"]
        proposal, exact = record["test"]["proposal"], record["test"]["quadrature"]
        scores = [
            with_spread(proposal["mean"], proposal["two_se"]),
            with_spread(exact["whole_split"], exact["whole_split_2se"]),
        ]
        rows.append([label, *_validation(training), *scores])
        if "proposal_alone" in record:
            alone = _validation(record["proposal_alone"])
            rows.append([f"{label}, proposal alone", *alone, "", ""])
    models = ("ResMADE-MoG (proposal)", "AEM, 20,000 samples")
    rows.append(["published", "", "", *(_published(model, "BSDS300") for model in models)])
    header = ["run", "best validation, at step", "last validation, at step", "test, proposal"]
    return markdown([*header, "test, quadrature"], rows)


def overfitting() -> str:
    """Scores of the paper's settings on training rows and on three kinds of other rows."""
    record = result("experiments/bsds300-by-heart")
    if record is None:
        return ""
    parts = list(record["proposal"])
    rows = [
        [name, *(f"{record[key][part]:.2f}" for part in parts)]
        for name, key in (("proposal of `paper`", "proposal"), ("Gaussian", "gaussian"))
    ]
    return markdown(["model", *(part.replace("_", " ") for part in parts)], rows)


def trials(name: str) -> str:
    """The settings in which trials differ, and the validation score of each."""
    record = result(f"experiments/{name}")
    if record is None:
        return "No trial is recorded yet.\n"
    configs = [dict(_flat(t["config"])) for t in record["trials"]]
    keys = [
        key
        for key in dict.fromkeys(k for c in configs for k in c)
        if len({json.dumps(c.get(key)) for c in configs}) > 1
        and all(key in c for c in configs)  # not a setting that came between two trials
        and key != "train.validate_every"
    ]
    mixtures = [t.get("mixture_validation_log_prob") for t in record["trials"]]
    singles = [t.get("validation_log_prob") for t in record["trials"]]
    # A mixture is scored on fewer rows: beside single models it needs a column of its own.
    beside = any(m is not None for m in mixtures) and any(m is None for m in mixtures)
    scores = (
        singles
        if beside
        else [s if m is None else m for m, s in zip(mixtures, singles, strict=True)]
    )
    best = max((s for s in scores if s is not None), default=None)
    proposals = [t.get("validation_proposal_log_prob") for t in record["trials"]]
    apart = proposals != scores  # where there is no energy, the proposal is all there is
    rows = []
    for trial, config, score, mixture, proposal in zip(
        record["trials"], configs, scores, mixtures, proposals, strict=True
    ):
        shown = _number(score) if score is not None else trial.get("failed", "failed")
        steps = trial.get("best_steps", [])
        rows.append(
            [
                f"**{shown}**" if score is not None and score == best else shown,
                *([_number(mixture) if mixture is not None else ""] if beside else []),
                *([_number(proposal)] if apart else []),
                str(steps[0]) if steps else "",
                *(str(config.get(key, "")) for key in keys),
            ]
        )
    names = [f"`{key}`" for key in keys]
    # The scores come first: a page may cut off the right side of a wide table.
    header = ["validation", *(["mixture, 2,000 rows"] if beside else [])]
    header += [*(["its proposal"] if apart else []), "best step"]
    return markdown([*header, *names], rows, "")


TABLES = {
    "small_tables": small_tables,
    "full_tables": full_tables,
    "beside_published": beside_published,
    "models_of_maf": models_of_maf,
    "overfitting_bsds300": overfitting,
    "paper_on_bsds300": paper_on_bsds300,
    "trials_bsds300": lambda: trials("bsds300"),
    "trials_bsds300_averaging": lambda: trials("bsds300-averaging"),
    "trials_bsds300_devices": lambda: trials("bsds300-devices"),
    "trials_bsds300_floor": lambda: trials("bsds300-floor"),
    "trials_bsds300_grey": lambda: trials("bsds300-grey"),
    "trials_bsds300_networks": lambda: trials("bsds300-networks"),
    "trials_bsds300_order": lambda: trials("bsds300-order"),
    "trials_bsds300_units": lambda: trials("bsds300-units"),
    "trials_bsds300_transformer": lambda: trials("bsds300-transformer"),
    "trials_gas_10k": lambda: trials("gas-10k"),
    "trials_hepmass_5k": lambda: trials("hepmass-5k"),
    "trials_hepmass_5k_proposal": lambda: trials("hepmass-5k-proposal"),
    "trials_miniboone": lambda: trials("miniboone"),
    "trials_miniboone_40": lambda: trials("miniboone-40"),
}
