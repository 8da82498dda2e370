"""Check the contents of wheel and sdist, and use the wheel in a clean environment.

    python -m tools.check_packages DIST ENVIRONMENT

DIST has one wheel and one sdist. ENVIRONMENT is a virtual environment with the wheel and its
required dependencies, without extras and without this checkout. `make packages` builds both.
"""

import csv
import json
import math
import os
import random
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# The files that a build reads, and those that describe the archive.
SDIST = {"src", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff"}
SDIST |= {"PKG-INFO", ".gitignore"}  # the builder adds them
OPTIONAL = ("matplotlib", "pillow", "tensorboard", "pandas", "polars", "pooch", "h5py")
ROWS, DRAWN = 200, 7


def check(holds: bool, sentence: str) -> None:
    """Stop with a message if a condition does not hold."""
    if not holds:
        sys.exit(f"packages: {sentence}")


def check_wheel(path: Path) -> None:
    """The wheel has every file of the package, including data files, and no other."""
    with zipfile.ZipFile(path) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    package = (file for file in (ROOT / "src/aem").rglob("*") if file.is_file())
    wanted = {
        file.relative_to(ROOT / "src").as_posix()
        for file in package
        if "__pycache__" not in file.parts
    }
    check(not wanted - names, f"{path.name} lacks {sorted(wanted - names)}")
    check(not names - wanted, f"{path.name} holds {sorted(names - wanted)}")


def check_sdist(path: Path) -> None:
    """The sdist holds the sources and their descriptions; no tests, results or data."""
    with tarfile.open(path) as sdist:
        tops = {name.split("/")[1] for name in sdist.getnames() if "/" in name}
    check(tops == SDIST, f"{path.name} holds {sorted(tops)}, not {sorted(SDIST)}")


class Environment:
    """A virtual environment, used from an empty folder as if there were no checkout."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.bin, self.folder = path.resolve() / "bin", folder
        self.variables = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}

    def run(self, program: str, *arguments: str) -> str:
        """Run a program, which must succeed, and return its output."""
        ended = subprocess.run(
            [self.bin / program, *arguments], cwd=self.folder, env=self.variables,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        said = f"{program} {' '.join(arguments)}: {ended.stderr or ended.stdout}"
        check(ended.returncode == 0, said.strip())
        return ended.stdout

    def numbers(self, file: str) -> list[list[float]]:
        """Return the numbers of a CSV file below its header."""
        with (self.folder / file).open(newline="") as lines:
            return [[float(cell) for cell in line] for line in list(csv.reader(lines))[1:]]


def check_environment(environment: Environment) -> None:
    """The wheel is what is imported, and no optional package is installed."""
    installed = json.loads(environment.run("pip", "list", "--format", "json"))
    unwanted = {entry["name"].lower() for entry in installed} & set(OPTIONAL)
    check(not unwanted, f"installing the wheel installs {sorted(unwanted)}")
    environment.run("pip", "check")
    place = environment.run("python", "-c", "import aem; print(aem.__file__)").strip()
    check("site-packages" in Path(place).parts, f"{place} is imported, not the wheel")
    environment.run("python", "-c", "import aem; [getattr(aem, name) for name in aem.__all__]")


def check_use(environment: Environment, version: str) -> None:
    """The program says its version, fits a table, scores it, draws from it and reports."""
    said = environment.run("aem", "--version")
    check(said == f"aem {version}\n", f"aem --version says {said!r}, and the wheel is {version}")
    draw = random.Random(0)
    with (environment.folder / "rows.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["height", "weight"])
        table.writerows([[draw.gauss(170, 10), draw.gauss(70, 8)] for _ in range(ROWS)])
    quick = ("--components", "2", "--hidden", "8", "--steps", "20", "--device", "cpu")
    environment.run("aem", "fit", "rows.csv", "--out", "rows.aem", *quick)
    environment.run("aem", "score", "rows.aem", "rows.csv", "--out", "scores.csv")
    scores = environment.numbers("scores.csv")
    check(len(scores) == ROWS, f"{ROWS} rows have {len(scores)} scores")
    check(all(map(math.isfinite, chain.from_iterable(scores))), "a score is not a finite number")
    environment.run("aem", "sample", "rows.aem", "-n", str(DRAWN), "--out", "drawn.csv")
    drawn = environment.numbers("drawn.csv")
    check(len(drawn) == DRAWN, f"{DRAWN} rows were asked for, {len(drawn)} drawn")
    environment.run("aem", "report", "rows.aem", "rows.csv", "--out", "report.html")
    page = (environment.folder / "report.html").read_text(encoding="utf-8")
    check("</html>" in page, "the report is not a page")


def main() -> None:
    """Check the packages of a folder."""
    dist, environment = map(Path, sys.argv[1:])
    (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    check_wheel(wheel)
    check_sdist(sdist)
    with tempfile.TemporaryDirectory() as folder:
        clean = Environment(environment, Path(folder))
        check_environment(clean)
        check_use(clean, wheel.name.split("-")[1])
    print(f"{wheel.name} and {sdist.name} hold what they should, and the wheel works by itself")


if __name__ == "__main__":
    main()
