"""Table 1 of the paper with our results beside the published ones, from files under results/.

Results on a part of a data set have no place in it: only the tables of `COLUMN_TASKS` are read.
"""

from dataclasses import dataclass, field
from pathlib import Path
from textwrap import TextWrapper
from typing import Any, Final

import matplotlib as mpl
from matplotlib.figure import Figure

from aem.base.console import as_markdown
from aem.base.files import read_json
from aem.data import registry
from aem.errors import AemError
from aem.paper.plots import new_figure
from aem.paper.published import LATER, TABLE_1, Published, with_spread

# POWER as MAF made it has whole minutes, a density without bound; with part of a minute added it is
# a column of its own, that nobody else has published.
COLUMN_TASKS: Final = {
    "POWER": "power-maf",
    "POWER, minutes blurred": "power",
    "GAS": "gas",
    "HEPMASS": "hepmass",
    "MINIBOONE": "miniboone",
    "BSDS300": "bsds300",
}
SCORES: Final = {
    "proposal": "proposal alone",
    "kde": "AEM-KDE",
    "importance": "AEM, importance sampling",
    "quadrature": "AEM, quadrature",
}
PRESETS: Final = {"paper": "ours, the paper's settings", "best": "ours, best"}
REMARKS: Final = {
    "BSDS300": "our patches were drawn anew from the pictures, as the published draw is not available",
    "MINIBOONE": "rows rebuilt from a public copy of the data by MAF's recipe: validation and test "
    "rows are those of MAF's files, training rows the same set in another order",
}
# Of the notes below the picture.
WRAP: Final = TextWrapper(
    186, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
)


@dataclass(frozen=True)
class Cell:
    """A cell of the table: a value, or the reason why there is none.

    Parameters
    ----------
    text
        what stands in the cell.
    note
        number of the note that explains it.
    value
        the number shown, to find the best of a column.
    """

    text: str = ""
    note: int | None = None
    value: float | None = None


@dataclass
class Table1:
    """The table: sections of rows, and the notes that cells refer to.

    Parameters
    ----------
    sections
        pairs of a title and its rows, each a name and its cells.
    notes
        the texts of the notes, numbered from one.
    """

    sections: list[tuple[str, list[tuple[str, list[Cell]]]]]
    notes: list[str] = field(default_factory=list)

    def markdown(self) -> str:
        """Return the table as Markdown."""
        lines = [["test log-likelihood (nats)", *COLUMN_TASKS]]
        for title, rows in self.sections:
            lines.append([f"*{title}*", *[""] * len(COLUMN_TASKS)])
            lines += [[name, *(_marked(cell) for cell in cells)] for name, cells in rows]
        notes = "".join(f"{number}. {note}\n" for number, note in enumerate(self.notes, 1))
        return f"{as_markdown(lines)}\n{notes}"

    def figure(self) -> Figure:
        """Return the table as a picture."""
        with mpl.rc_context({"font.size": 9, "font.family": "DejaVu Sans"}):
            return _draw(self)


def build(results: Path) -> Table1:
    """Gather published scores and recorded results into the table.

    Parameters
    ----------
    results
        the folder of results.
    """
    if not results.is_dir():
        raise AemError(f"there is no folder of results at {results}")
    table = Table1([])
    notes = table.notes
    table.sections.append(("published with the paper", [_published(row) for row in TABLE_1]))
    table.sections.append(("published later", [_published(row) for row in LATER]))
    for preset, title in PRESETS.items():
        found = {column: _found(results, task, preset) for column, task in COLUMN_TASKS.items()}
        rows = [
            (
                label,
                [_ours(column, preset, score, record, notes) for column, record in found.items()],
            )
            for score, label in SCORES.items()
        ]
        table.sections.append((title, rows))
        for column, record in found.items():
            if record is not None and any(m.get("unfinished") for m in record["training"]):
                notes.append(
                    f"{column}, {preset}: the best model of a training that was stopped after"
                    f" {record['steps']:,} steps."
                )
    for column, remark in REMARKS.items():
        notes.append(f"{column}: {remark}.")
    return table


def _published(row: Published) -> tuple[str, list[Cell]]:
    cells = []
    for column in COLUMN_TASKS:
        if column not in row.scores:
            cells.append(Cell())
            continue
        value, spread = row.scores[column]
        cells.append(Cell(with_spread(value, spread), value=value))
    return row.model, cells


def _found(results: Path, task: str, preset: str) -> dict[str, Any] | None:
    """Read a recorded result, or that of a run in a subfolder."""
    recorded = results / task / f"{preset}.json"
    if recorded.is_file():
        return _read(recorded)
    runs = (run for run in sorted(results.glob("*/metrics.json")) if _is_of(run, task, preset))
    return next(map(_read, runs), None)


def _is_of(run: Path, task: str, preset: str) -> bool:
    try:
        about = read_json(run)
        return bool(about["task"] == task and about["preset"] == preset)
    except (AemError, KeyError, TypeError):
        return False  # another program's file of that name


def _read(path: Path) -> dict[str, Any]:
    try:
        record = read_json(path)
        record["test"]["quadrature"]["error"]
        record["steps"], record["training"]
        for score in SCORES:
            record["test"][score]
    except (AemError, KeyError, TypeError) as error:
        raise AemError(f"{path} is not a result of an experiment on a table") from error
    return dict(record)


def _ours(
    column: str, preset: str, score: str, record: dict[str, Any] | None, notes: list[str]
) -> Cell:
    task = COLUMN_TASKS[column]
    if record is None and registry.status(task).present:
        return Cell("not run")
    if record is None:
        how = registry.find(task).how_to_get
        return Cell("no data", _note(notes, f"{column} is not available: {how}."))
    found = record["test"][score]
    if not found or found.get("mean") is None:
        return Cell("not computed")
    rows, all_rows = found["rows"], record["test"]["rows"]
    if score == "proposal" or rows == all_rows:
        value, spread = found["mean"], found["two_se"]
    else:
        value, spread = found["whole_split"], found["whole_split_2se"]
    about = []
    if rows < all_rows:
        about.append(
            f"from the first {rows:,} of {all_rows:,} test rows, by their difference to the"
            " proposal, which is known on all"
        )
    if found.get("rows_without_density"):
        about.append(f"without {found['rows_without_density']:,} rows that have no density")
    if score == "quadrature":
        about.append(f"stated error {found['error']:.0e} nats")
    text = with_spread(value, spread)
    if not about:
        return Cell(text, value=value)
    note = f"{column}, {preset}, {SCORES[score]}: {'; '.join(about)}."
    return Cell(text, _note(notes, note), value)


def _note(notes: list[str], text: str) -> int:
    if text not in notes:
        notes.append(text)
    return notes.index(text) + 1


def _marked(cell: Cell) -> str:
    text = f"*{cell.text}*" if cell.text and cell.value is None else cell.text
    return text + (f" <sup>{cell.note}</sup>" if cell.note else "")


def _draw(table: Table1) -> Figure:
    """Draw the table with a rule below each section and notes at the end."""
    count = sum(1 + len(rows) for _, rows in table.sections) + 1
    note_lines = [
        line for n, note in enumerate(table.notes, 1) for line in WRAP.wrap(f"{n} {note}")
    ]
    unit = 0.245  # inches a line
    height = unit * (count + 1.5) + 0.17 * len(note_lines)
    figure, (axes,) = new_figure(12.0, height, 1)
    figure.set_layout_engine("none")
    axes.set_position((0, 0, 1, 1))
    axes.axis("off")
    axes.set_xlim(0, 12)
    axes.set_ylim(height, 0)
    places = [3.0 + 1.62 * i for i in range(len(COLUMN_TASKS))]
    y = unit
    axes.text(0.15, y, "test log-likelihood (nats)", va="center", weight="bold")
    for x, name in zip(places, COLUMN_TASKS, strict=True):
        axes.text(x, y, name, va="center", ha="center", weight="bold", fontsize=8.5)
    best = _best_in_column(table)
    for title, rows in table.sections:
        y += unit
        axes.plot([0.15, 11.85], [y - unit / 2] * 2, color="0.6", linewidth=0.6)
        axes.text(0.15, y, title, va="center", style="italic", color="0.35")
        for name, cells in rows:
            y += unit
            axes.text(0.35, y, name, va="center")
            for i, (x, cell) in enumerate(zip(places, cells, strict=True)):
                weight = (
                    "bold" if cell.value is not None and _shown(cell.value) == best[i] else "normal"
                )
                colour = "0.55" if cell.value is None else "black"
                axes.text(x, y, cell.text, va="center", ha="center", weight=weight, color=colour)
                if cell.note:
                    axes.text(
                        x + 0.068 * len(cell.text) / 2 + 0.06,
                        y - 0.05,
                        str(cell.note),
                        va="center",
                        fontsize=6.5,
                        color="0.45",
                    )
    y += unit
    axes.plot([0.15, 11.85], [y - unit / 2] * 2, color="0.6", linewidth=0.6)
    for line in note_lines:
        axes.text(0.15, y, line, va="center", fontsize=7.5, color="0.3")
        y += 0.17
    return figure


def _shown(value: float) -> float:
    """Round a score to the digits that are shown: scores that agree in these are equally good."""
    return round(value, 2)


def _best_in_column(table: Table1) -> list[float | None]:
    columns: list[list[float]] = [[] for _ in COLUMN_TASKS]
    for _, rows in table.sections:
        for _, cells in rows:
            for i, cell in enumerate(cells):
                if cell.value is not None:
                    columns[i].append(_shown(cell.value))
    return [max(values, default=None) for values in columns]
