"""The tables that compare untuned fits with other methods, from results/*.json."""

from typing import Any

from tools.render.pages import markdown, result

TABLES_OUT_OF_THE_BOX = ("wine", "breast-cancer", "magic", "gas-10k", "hepmass-5k", "miniboone-40")
METHODS = {
    "aem": "`AEMDensity`",
    "gaussian mixture": "Gaussian mixture",
    "kernel density": "kernel density",
    "spline flow": "spline flow",
}
NOT_MEASURED = "Not measured yet: `make bench-accuracy`."


def _table(header: list[str], rows: list[list[str]]) -> str:
    return markdown(header, rows, NOT_MEASURED)


def accuracy() -> str:
    """Test log-likelihoods of all methods, table by table; the best is bold."""
    rows = []
    for table in TABLES_OUT_OF_THE_BOX:
        record = result(f"accuracy/{table}")
        if record is None:
            continue
        found = record["methods"]
        best = max(m["test_log_prob"] for m in found.values())
        for name, label in METHODS.items():
            if name not in found:
                continue
            m = found[name]
            mean = f"{m['test_log_prob']:.3f} ± {m['test_log_prob_2se']:.3f}"
            apart = [s.get("told_apart_auroc") for s in m["settings"]]
            rows.append(
                [
                    table,
                    label,
                    f"**{mean}**" if m["test_log_prob"] == best else mean,
                    f"{m['median']:.3f}",
                    f"{m['worst']:.1f}",
                    f"{m['seconds_a_fit']:.0f} s",
                    "" if apart[0] is None else f"{apart[0]:.3f}",
                ]
            )
    header = [
        "table",
        "method",
        "test log-likelihood ± 2 s.e.",
        "median",
        "worst row",
        "time per fit",
    ]
    return _table([*header, "AUROC of a classifier on samples"], rows)


def anomalies() -> str:
    """AUROC of all methods, table by table and in the mean."""
    record = result("anomalies/adbench")
    if record is None:
        return f"{NOT_MEASURED}\n"
    methods = list(record["mean_auroc"]["mix"])
    rows = []
    for setting, means in record["mean_auroc"].items():
        for name, found in record["tables"].items():
            rows.append([name.split("_", 1)[1], setting, *_best_bold(found[setting], methods)])
        label = f"**mean of {len(record['tables'])}**"
        rows.append([label, setting, *_best_bold(means, methods)])
    return _table(["table", "fitted on", *methods], rows)


def _best_bold(aurocs: dict[str, float], methods: list[str]) -> list[str]:
    best = max(aurocs[m] for m in methods)
    return [f"**{aurocs[m]:.3f}**" if aurocs[m] == best else f"{aurocs[m]:.3f}" for m in methods]


CONTENDERS = {
    "automatic": "`AEMDensity`",
    "machine": "autoregressive energy machine",
    "flow": "neural spline flow",
}


def sharp_edges() -> str:
    """Distances to a known density with sharp edges, by the processor time of the training."""
    record = result("accuracy/sharp-edges")
    if record is None:
        return f"{NOT_MEASURED}\n"
    rows = []
    for name, found in record["models"].items():
        kind = name.partition(",")[0]
        proposal = found.get("proposal_distance")
        rows.append(
            [
                f"{found['processor_seconds']:.0f} s",
                CONTENDERS[kind],
                f"{found['distance']:.4f} ± {2 * found['standard_error']:.4f}",
                "" if proposal is None else f"{proposal:.4f}",
                f"{found['worst']:.1f}",
            ]
        )
    rows.sort(key=lambda row: float(row[0].removesuffix(" s")))
    header = ["processor time of the training", "model", "distance ± 2 s.e. (nats)"]
    table = _table([*header, "distance of the proposal", "lowest log density of a row"], rows)
    config = record["config"]
    return (
        f"{table}\n{config['rows']:,} training rows, {config['test_rows']:,} test rows, one seed; "
        f"{record['device']}, commit {record['commit']} (of the last model).\n"
    )


def copies() -> str:
    """Test scores of fits to tables with copies of rows."""
    record = result("accuracy/copies")
    if record is None:
        return f"{NOT_MEASURED}\n"
    kinds = ["rows", "doubled", "distinct of bootstrapped", "bootstrapped"]
    rows = [
        [name, *(f"{found[kind]['test']:.3f}" for kind in kinds)]
        for name, found in record["tables"].items()
    ]
    header = ["table", "rows once", "every row twice", "distinct rows of a bootstrap sample"]
    return _table([*header, "the bootstrap sample"], rows)


PROPOSALS = {"mixture": "Gaussians", "student_t": "Student-t distributions"}


def heavy_tails() -> str:
    """Gaps to the true density of a heavy-tailed column, for each proposal."""
    record = result("accuracy/heavy-tails")
    if record is None:
        return f"{NOT_MEASURED}\n"
    found: dict[tuple[int, float, str], list[dict[str, Any]]] = {}
    for run in record["runs"]:
        kind = run["train_rows"], run["degrees_of_freedom"], run["proposal"]
        found.setdefault(kind, []).append(run)
    rows = []
    for (count, degrees, proposal), same in found.items():
        gaps = ", ".join(f"{run['gap']:.3f} ± {run['gap_2se']:.3f}" for run in same)
        worst = ", ".join(f"{run['worst_gap']:.0f}" for run in same)
        nodes = sum(run["nodes"] for run in same) / len(same)
        label = f"mixture of {PROPOSALS[proposal]}"
        rows.append([f"{count:,}", f"{degrees:g}", label, gaps, worst, f"{nodes:.0f}"])
    header = [
        "training rows",
        "ν of the data",
        "proposal",
        "mean gap to the truth, nats per row ± 2 s.e.",
    ]
    table = markdown([*header, "largest gap of a row", "nodes per normaliser"], rows)
    fewest, heaviest = record["runs"][0]["train_rows"], record["runs"][0]["degrees_of_freedom"]
    said = []
    for proposal, label in PROPOSALS.items():
        same = found[fewest, heaviest, proposal]
        mean, worst = sum(r["gap"] for r in same) / len(same), max(r["worst_gap"] for r in same)
        said.append(
            f"{mean:.3f} nats per row with mixtures of {label} (at most {worst:.0f} for a single row)"
        )
    return (
        f"{table}\nWith {fewest:,} training rows of {heaviest:g} degrees of freedom, the mean gap of "
        f"held-out rows is {' and '.join(said)}. {len(same)} seeds, {record['test_rows']:,} test rows "
        f"each; {record['device']}, commit {record['commit']}.\n"
    )


def runs() -> str:
    """The command, device and commit of each result."""
    rows = []
    others = (
        "accuracy/sharp-edges",
        "accuracy/copies",
        "accuracy/heavy-tails",
        "anomalies/adbench",
    )
    for name in (*(f"accuracy/{table}" for table in TABLES_OUT_OF_THE_BOX), *others):
        record = result(name)
        if record is not None:
            device = ", ".join(filter(None, (record["device"], record.get("processor"))))
            rows.append([name, f"`{record['command']}`", device, str(record["commit"])])
    return _table(["result", "command", "device", "commit"], rows)


TABLES = {
    "accuracy": accuracy,
    "anomalies": anomalies,
    "copies": copies,
    "heavy_tails": heavy_tails,
    "practice_runs": runs,
    "sharp_edges": sharp_edges,
}
