"""Run the test suite with other instructions, numbers of threads and loads.

    python -m benchmarks.claims.suite_settings [NAME …] [--workers 2]

Writes results/tests/settings.json after every run: what failed, and how long it took. The
instructions are those that PyTorch, MKL and OpenBLAS let a user choose on this processor.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from aem.base.files import write_json
from aem.base.provenance import provenance
from benchmarks.neighbours import neighbours
from benchmarks.places import ROOT

OUT = ROOT / "results" / "tests" / "settings.json"
MOST_SECONDS = 3600
VARIABLES = re.compile("OMP_|GOMP_|KMP_|MKL_|OPENBLAS_|ATEN_|AEM_THREADS")
AVX2 = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",  # which MKL heeds on Intel's processors, and the next on all
    "MKL_CBWR": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell",
}
OLDEST = {
    "ATEN_CPU_CAPABILITY": "default",
    "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
    "MKL_CBWR": "COMPATIBLE",
    "OPENBLAS_CORETYPE": "Nehalem",
}


@dataclass(frozen=True)
class Setting:
    """How to run the test suite once."""

    name: str
    environment: dict[str, str] = field(default_factory=dict)
    busy: int = 0  # other processes, one thread each


@dataclass(frozen=True)
class Workers:
    """The number of pytest's workers."""

    workers: int


SETTINGS = (
    Setting("plain"),
    Setting("avx2", AVX2),
    Setting("oldest", OLDEST),
    Setting("two-threads", {"AEM_THREADS": "2"}),
    Setting("four-threads", {"AEM_THREADS": "4"}),
    Setting("busy", busy=2),
    Setting("busy-avx2", AVX2, busy=2),
    Setting("busy-oldest", OLDEST, busy=2),
    Setting("busy-two-threads", {"AEM_THREADS": "2"}, busy=2),
    Setting("busy-four-threads", {"AEM_THREADS": "4"}, busy=2),
)


def run(setting: Setting, workers: int) -> dict[str, Any]:
    """Run the suite and return its results."""
    kept = {name: value for name, value in os.environ.items() if not VARIABLES.match(name)}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-n", str(workers)]
        command += ["-p", "no:cacheprovider", f"--junit-xml={report}"]
        started = time.monotonic()
        with neighbours(setting.busy):
            subprocess.run(
                command, cwd=ROOT, env=kept | setting.environment, timeout=MOST_SECONDS,
                stdout=subprocess.DEVNULL, check=False,
            )  # fmt: skip
        seconds = time.monotonic() - started
        suite = next(ElementTree.parse(report).iter("testsuite"))
    failed = [
        f"{case.get('classname')}::{case.get('name')}"
        for case in suite.iter("testcase")
        if case.find("failure") is not None or case.find("error") is not None
    ]
    skipped = int(suite.get("skipped", 0))
    return {
        "name": setting.name,
        "environment": setting.environment,
        "busy": setting.busy,
        "seconds": seconds,
        "passed": int(suite.get("tests", 0)) - len(failed) - skipped,
        "skipped": skipped,
        "failed": failed,
    }


def main() -> None:
    """Run the suite in the settings named on the command line, or in all."""
    known = {setting.name: setting for setting in SETTINGS}
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help=f"of {', '.join(known)}; default: all")
    parser.add_argument("--workers", type=int, default=2, help="of pytest")
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in known]
    if unknown:
        parser.error(f"unknown setting {', '.join(unknown)}; known: {', '.join(known)}")
    record = {
        "task": "tests",
        **provenance(Workers(arguments.workers), 0, torch.device("cpu")),
        "cores": os.cpu_count(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "runs": [],
    }
    for name in arguments.names or known:
        found = run(known[name], arguments.workers)
        record["runs"].append(found)
        write_json(arguments.out, record)
        print(name, f"{found['seconds']:.0f} s", f"{found['passed']} passed", *found["failed"])
    sys.exit(any(entry["failed"] for entry in record["runs"]))


if __name__ == "__main__":
    main()
