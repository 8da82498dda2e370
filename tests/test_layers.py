"""Who may import whom: imports go down only, and what scores a table loads no trainer."""

import ast
from collections.abc import Iterator
from pathlib import Path

import aem

ROOT = Path(aem.__file__).parent
# From the ground up. Folders of one floor do not know each other.
FLOORS = (
    {"errors"},
    {"extras"},
    {"base", "data"},
    {"config"},
    {"nn"},
    {"conditionals"},
    {"model"},
    {"training", "evaluation"},
    {"tables", "vae"},
    {"report"},
    {"cli", "paper"},
)
FLOOR = {name: level for level, floor in enumerate(FLOORS) for name in floor}
LEAF = "data"  # knows nothing but errors and extras
NOT_TO_SCORE = ("tables.model", "tables.queries", "tables.reading", "tables.sources", "cli.score")
TRAINERS = ("training", "tables.fit", "tables.detector", "paper")


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(part for part in parts if part != "__init__"), path


def imported(path: Path) -> Iterator[str]:
    """Modules of the library that a file imports anywhere, functions and type checking included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports name the whole module"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        yield from (
            name.removeprefix("aem.")
            for name in names
            if name.startswith("aem.") and name != "aem.__version__"
        )


def room(module: str) -> str:
    return module.partition(".")[0]


def test_every_room_has_a_floor() -> None:
    assert {room(module) for module, _ in modules() if module} == set(FLOOR)


def test_imports_go_down_only() -> None:
    wrong = []
    for module, path in modules():
        own = room(module)
        if not own:
            continue
        for other in imported(path):
            there = room(other)
            allowed = own == there or (
                FLOOR[there] < FLOOR[own] and (own != LEAF or there in {"errors", "extras"})
            )
            if not allowed:
                wrong.append(f"{module} imports {other}")
    assert not wrong, "\n".join(wrong)


def test_what_scores_a_table_loads_no_trainer() -> None:
    wrong = [
        f"{module} imports {other}"
        for module, path in modules()
        for other in imported(path)
        if module.startswith(NOT_TO_SCORE) and other.startswith(TRAINERS)
    ]
    assert not wrong, "\n".join(wrong)


def test_the_house_has_few_doors_and_no_crowded_room() -> None:
    folders = [path for path in ROOT.rglob("*") if path.is_dir() and path.name != "__pycache__"]
    for folder in (ROOT, *folders):
        files = [path for path in folder.iterdir() if path.is_file()]
        assert len(files) <= 16, f"{folder} holds {len(files)} files"
    assert len(list(ROOT.glob("*.py"))) <= 6
    assert len([path for path in folders if path.parent == ROOT]) <= 16
