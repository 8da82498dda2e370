"""A run on a table of real data, from settings to metrics."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aem.base.devices import choose_device
from aem.base.files import check_writable, finite, write_atomically, write_json
from aem.base.progress import Report, silent
from aem.base.provenance import provenance
from aem.base.settings import to_toml
from aem.data import registry
from aem.data.splits import TableSplits
from aem.paper.tables.config import TableConfig, TableTask
from aem.paper.tables.evaluate import Evaluator
from aem.paper.tables.members import TrainedMember, train_member
from aem.paper.tables.symmetries import check_symmetries, views
from aem.tables.ensemble import TableEnsemble, column_orders


@dataclass(frozen=True)
class TableRun:
    """The results of a run on a table.

    Parameters
    ----------
    members
        the trained models.
    metrics
        what metrics.json holds.
    folder
        folder with all files of the run.
    """

    members: tuple[TrainedMember, ...]
    metrics: dict[str, Any]
    folder: Path


def load_splits(task: TableTask) -> TableSplits:
    """Return the splits of a table, cut to the rows asked for.

    Parameters
    ----------
    task
        which table, and how many rows.
    """
    splits = registry.load(task.name)
    return replace(
        splits,
        train=splits.train[: task.train_rows or None],
        validation=splits.validation[: task.validation_rows or None],
        test=splits.test[: task.test_rows or None],
    )


def run_table(
    config: TableConfig,
    preset: str,
    folder: Path,
    *,
    evaluate_only: bool = False,
    quiet: bool = False,
    report: Report = silent,
) -> TableRun:
    """Train and evaluate, and write metrics.json; a stopped run continues where it was.

    Parameters
    ----------
    config
        all settings of the run.
    preset
        the name that the results are recorded under.
    folder
        folder of the run; a stopped run in it is continued.
    evaluate_only
        whether to train nothing and score what there is.
    quiet
        whether to show no progress of the training.
    report
        called as `report(what, done, total)` while rows are scored.
    """
    device = choose_device(config.train.device)
    splits = load_splits(config.task)
    check_symmetries(splits, max(config.task.symmetries, config.ensemble.symmetries))
    check_writable(folder)
    members = train_members(
        config,
        preset,
        splits,
        folder,
        evaluate_only=evaluate_only,
        quiet=quiet,
    )
    write_atomically(folder / "config.toml", to_toml(config).encode())
    scored = views([m.member for m in members], splits, config.ensemble.symmetries)
    evaluator = Evaluator(scored, splits, config.evaluate, folder / "scores", report)
    metrics = {
        "task": config.task.name,
        "preset": preset,
        **provenance(config, config.train.seed, device),
        "steps": sum(m.training["steps"] for m in members),
        "seconds": round(sum(m.training["seconds"] for m in members), 2),
        "rows": {
            "train": len(splits.train),
            "validation": len(splits.validation),
            "test": len(splits.test),
        },
        **evaluator.record(),
        "training": [finite(m.training) for m in members],
    }
    write_json(folder / "metrics.json", metrics)
    return TableRun(tuple(members), metrics, folder)


def train_members(
    config: TableConfig,
    preset: str,
    splits: TableSplits,
    folder: Path,
    *,
    evaluate_only: bool = False,
    quiet: bool = False,
) -> list[TrainedMember]:
    """Train all members of a run, and save several as an ensemble.

    Parameters
    ----------
    config
        all settings of the run.
    preset
        the name that the results are recorded under.
    splits
        the table, in its own order of columns.
    folder
        where checkpoints and models go.
    evaluate_only
        whether to train nothing and read what there is.
    quiet
        whether to show no progress.
    """
    count = config.ensemble.members
    orders = column_orders(len(splits.columns), count, config.train.seed)
    members = [
        train_member(
            config,
            preset,
            place,
            order,
            splits,
            folder if count == 1 else folder / f"member-{place}",
            evaluate_only=evaluate_only,
            quiet=quiet,
        )
        for place, order in enumerate(orders)
    ]
    if count > 1 and not any(m.training.get("unfinished") for m in members):
        about = {"task": config.task.name, "preset": preset}
        ensemble = TableEnsemble([m.member for m in members], about)
        ensemble.save(folder / "ensemble.aem")
    return members
