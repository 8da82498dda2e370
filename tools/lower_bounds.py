"""Print the oldest version of each dependency that pyproject.toml allows, as constraints for pip.

    python -m tools.lower_bounds > oldest.txt

`make test-oldest` runs the tests with them. Torch is not among them: constraints.txt pins it.
"""

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
EXTRAS = ("data", "frames", "log", "paper")  # of users, not of developers
BOUND = re.compile(r"(?P<name>[\w-]+)>=(?P<version>[\w.]+)")


def lower_bounds(requirements: Sequence[str]) -> dict[str, str]:
    """Return the lowest version of every requirement but torch."""
    found: dict[str, str] = {}
    for requirement in requirements:
        bound = BOUND.fullmatch(requirement)
        if bound is None:
            raise ValueError(f"{requirement} is not NAME>=VERSION")
        name, version = bound["name"], bound["version"]
        if found.setdefault(name, version) != version:
            raise ValueError(f"{name} has two lower bounds, {found[name]} and {version}")
    found.pop("torch", None)
    return found


def main() -> None:
    """Print the constraints."""
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    asked = [*project["dependencies"]]
    for extra in EXTRAS:
        asked += project["optional-dependencies"][extra]
    for name, version in lower_bounds(asked).items():
        print(f"{name}=={version}")


if __name__ == "__main__":
    main()
