"""Neighbours come and go, slow turns are cut off, and ratios say what was measured."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aem.errors import AemError
from benchmarks.neighbours import neighbours
from benchmarks.speed import contention
from benchmarks.speed.contention import Measurement, Plan, Worker, compare, environment, take_turns
from tools.render import speed

ROOT = Path(__file__).resolve().parents[2]
# Stands in for contended.py: one thread is quick, the default never done, two threads fail.
FAKE = """
import json, os, subprocess, sys, time
print(json.dumps({"package": os.environ["PYTHONPATH"] + "/aem/__init__.py"}), flush=True)
for _ in sys.stdin:
    if "OMP_NUM_THREADS" not in os.environ:
        subprocess.run([sys.executable, "-c", "import time; time.sleep(60)"])
    if os.environ["OMP_NUM_THREADS"] == "2":
        sys.exit("no such model")
    print(json.dumps({"seconds": 0.01}), flush=True)
"""
PLAN = Plan(turns=3, limit=0.5)


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[str]]:
    """Every neighbour that a measurement starts."""
    started: list[subprocess.Popen[str]] = []

    @contextmanager
    def remembered(count: int) -> Iterator[None]:
        with neighbours(count) as processes:
            started.extend(processes)
            assert all(process.poll() is None for process in processes)
            yield

    monkeypatch.setattr(contention, "neighbours", remembered)
    return started


@pytest.fixture
def workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Worker]]:
    script = tmp_path / "fake.py"
    script.write_text(FAKE, encoding="utf-8")
    monkeypatch.setattr(contention, "SCRIPT", script)
    found = {
        threads: Worker("demo", "after", tmp_path, threads, tmp_path / "model")
        for threads in ("one", "default", "two")
    }
    yield found
    for worker in found.values():
        worker.stop()


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt, SystemExit])
def test_neighbours_are_gone_whatever_happened(error: type[BaseException] | None) -> None:
    processes: list[subprocess.Popen[str]] = []
    if error is None:
        with neighbours(2) as processes:
            assert [process.poll() for process in processes] == [None, None]
    else:
        with pytest.raises(error), neighbours(2) as processes:
            raise error
    assert [process.returncode for process in processes] == [-signal.SIGKILL] * 2


def test_neighbours_end_when_whoever_started_them_was_killed() -> None:
    code = (
        "import os; from benchmarks.neighbours import neighbours\n"
        "with neighbours(2): os.kill(os.getpid(), 9)"
    )
    variables = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}
    # They inherit standard error: this returns when the last of them has closed it.
    ended = subprocess.run(
        [sys.executable, "-c", code], env=variables, stderr=subprocess.PIPE, timeout=60, check=False
    )
    assert ended.returncode == -signal.SIGKILL
    assert not ended.stderr


def test_a_neighbour_that_ends_too_early_spoils_the_measurement() -> None:
    with pytest.raises(AemError, match="ended before"), neighbours(1) as processes:
        processes[0].kill()
        processes[0].wait()


def test_a_turn_over_its_limit_is_killed_and_recorded(
    workers: dict[str, Worker], busy: list[subprocess.Popen[str]]
) -> None:
    pair = [workers["default"], workers["one"]]
    for count in (0, 1):  # a process that was killed starts again for the next number of neighbours
        default, one = take_turns(pair, count, PLAN)
        assert default.seconds == ()
        assert default.at_least == default.median == 1.0  # a demo has twice the limit
        assert one.seconds == (0.01,) * 3
        assert one.at_least is None
        assert workers["default"].process is None
        assert workers["one"].process is not None
    assert len(busy) == 1
    assert busy[0].returncode == -signal.SIGKILL


def test_turns_end_when_the_share_is_used_up(workers: dict[str, Worker]) -> None:
    (one,) = take_turns([workers["one"]], 0, Plan(turns=9, share=0.025))
    assert len(one.seconds) == 3


def test_a_failure_says_why_and_leaves_no_process(
    workers: dict[str, Worker], busy: list[subprocess.Popen[str]]
) -> None:
    with pytest.raises(AemError, match="no such model"):
        take_turns([workers["one"], workers["two"]], 2, PLAN)
    assert [process.returncode for process in busy] == [-signal.SIGKILL] * 2
    assert workers["two"].process is None


def test_an_interruption_leaves_no_neighbour(
    workers: dict[str, Worker],
    busy: list[subprocess.Popen[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(self: Worker, limit: float) -> float | None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Worker, "turn", interrupted)
    with pytest.raises(KeyboardInterrupt):
        take_turns([workers["one"]], 1, PLAN)
    assert busy[0].returncode == -signal.SIGKILL


def test_another_package_than_the_one_asked_for_is_refused(
    workers: dict[str, Worker], tmp_path: Path
) -> None:
    elsewhere = f'print(\'{{"package": "{tmp_path.parent}/aem/__init__.py"}}\')'
    (tmp_path / "fake.py").write_text(elsewhere, encoding="utf-8")
    with pytest.raises(AemError, match="which is not in"):
        take_turns([workers["one"]], 0, PLAN)


def test_settings_decide_threads_alone() -> None:
    inherited = {"PATH": "/bin", "OMP_NUM_THREADS": "7", "GOMP_SPINCOUNT": "0", "AEM_THREADS": "7"}
    source = Path("/checkout/src")
    plain = {"PATH": "/bin", "PYTHONPATH": "/checkout/src"}
    assert environment(inherited, source, "default") == plain
    one = {"AEM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    assert environment(inherited, source, "one") == {**plain, **one}


def measured(
    threads: str, *seconds: float, count: int = 1, at_least: float | None = None, **more: str
) -> Measurement:
    about = {"workload": "score", "tree": "after", **more}
    return Measurement(
        **about, threads=threads, neighbours=count, seconds=seconds, at_least=at_least
    )


@pytest.mark.parametrize(
    ("one", "default", "count", "expected"),
    [
        (measured("one", 2.0), measured("default", 1.0, 2.0, 9.0), 1, (1.0, "exact", 0.9, True)),
        (measured("one", 2.0), measured("default", 4.0), 1, (0.5, "exact", 0.9, False)),
        (measured("one", 2.0), measured("default", 2.4), 4, (5 / 6, "exact", 0.8, True)),
        (measured("one", 2.0), measured("default", 1.0), 0, (2.0, "exact", 1.6, True)),
        (measured("one", 2.0), measured("default", at_least=20.0), 1, (0.1, "at most", 0.9, False)),
        (measured("one", 20.0), measured("default", at_least=10.0), 1, (2, "at most", 0.9, None)),
        (measured("one", at_least=20.0), measured("default", 10.0), 1, (2, "at least", 0.9, True)),
        (measured("one", at_least=5.0), measured("default", 10.0), 1, (0.5, "at least", 0.9, None)),
        (
            measured("one", at_least=20.0),
            measured("default", at_least=20.0),
            1,
            (None, "unknown", 0.9, None),
        ),
    ],
)
def test_ratios(
    one: Measurement, default: Measurement, count: int, expected: tuple[object, ...]
) -> None:
    pair = [Measurement(**{**m.__dict__, "neighbours": count}) for m in (one, default)]
    (found,) = compare(pair)
    assert tuple(found[key] for key in ("ratio", "bound", "target", "met")) == pytest.approx(
        expected
    )


def test_only_like_is_compared_with_like() -> None:
    found = compare(
        [
            measured("one", 1.0),
            measured("one", 3.0, tree="before"),
            measured("default", 6.0, tree="before"),
            measured("one", 1.0, count=0, workload="fit"),
            measured("default", 1.0, count=0, workload="fit"),
        ]
    )
    assert [(c["workload"], c["tree"], c["ratio"]) for c in found] == [
        ("score", "before", 0.5),
        ("fit", "after", 1.0),
    ]
    assert found[1]["target"] is None  # on an idle machine only scores have one


def test_a_cut_turn_counts_as_its_limit() -> None:
    m = measured("default", 5.0, at_least=20.0)
    assert m.as_record()["value"] == 2000 / 12.5
    assert m.as_record()["unit"] == "rows/s"
    assert measured("one", 3.0, workload="demo").as_record()["value"] == 3.0


def test_the_table_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    measurements = [
        measured("one", 2.0, tree="before"),
        measured("default", tree="before", at_least=20.0),
        measured("one", 2.0),
        measured("default", 1.0),
        measured("one", 4.0, workload="demo", count=0),
        measured("default", at_least=40.0, workload="demo", count=0),
    ]
    record = {
        "command": "contention.py",
        "device": "CPU",
        "cores": 2,
        "seconds": 60.0,
        "commit": "abc",
        "before_commit": "def",
        "measurements": [m.as_record() for m in measurements],
        "comparisons": compare(measurements),
    }
    monkeypatch.setattr(speed, "result", lambda name: record)
    lines = speed.busy_table().splitlines()
    assert lines[2] == (
        "| score, rows/s | 1 | 1,000 | < 100 | < 0.10 | 1,000 | 2,000 | 2.00 | ≥ 0.9, met |"
    )
    assert lines[3] == "| demo, s | 0 | — | — | — | 4 | > 40 | < 0.10 | — |"
    assert lines[-1] == "`contention.py`, CPU, 2 cores, commit abc, before: def, 60 s."
    monkeypatch.setattr(speed, "result", lambda name: None)
    assert speed.busy_table().startswith("Not measured yet")
