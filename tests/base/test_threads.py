"""How many threads there are, and what they do with work, errors and interruptions."""

import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from aem import AemError, get_threads, set_threads
from aem.base import threads
from aem.base.threads import alone, available, container_quota, spread


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(threads.VARIABLE, raising=False)
    yield
    set_threads(None)
    torch.set_num_threads(1)


def test_what_is_chosen_counts_before_the_variable_and_that_before_the_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threads, "available", lambda: 3)
    torch.set_num_threads(8)
    assert get_threads() == 3
    torch.set_num_threads(2)
    assert get_threads() == 2, "whoever restricts PyTorch restricts this library"
    monkeypatch.setenv("AEM_THREADS", " 5 ")
    assert get_threads() == 5
    set_threads(7)
    assert get_threads() == 7
    set_threads(None)
    assert get_threads() == 5


@pytest.mark.parametrize("value", ["0", "-1", "many", "1.5", "²"])
def test_a_variable_that_names_no_number_is_refused(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AEM_THREADS", value)
    with pytest.raises(AemError, match="AEM_THREADS must be a whole number"):
        get_threads()


def test_no_threads_are_refused() -> None:
    with pytest.raises(AemError, match="at least 1, not 0"):
        set_threads(0)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity on this system")
def test_affinity_is_respected() -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert available() == 1
    finally:
        os.sched_setaffinity(0, before)


def group(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


@pytest.mark.parametrize(
    ("own", "files", "quota"),
    [
        ("0::/", {"cpu.max": "150000 100000"}, 1.5),
        ("0::/", {"cpu.max": "max 100000"}, math.inf),
        # The tightest of a group and those it lies in.
        ("0::/a/b", {"a/cpu.max": "200000 100000", "a/b/cpu.max": "max 100000"}, 2.0),
        # Within a container the path of the host is not there, but the root is the container's.
        ("0::/docker/123", {"cpu.max": "50000 100000"}, 0.5),
        ("4:cpu,cpuacct:/x", {"cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "100000"}, 3),
        ("4:cpu:/x", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, math.inf),
        ("0::/", {"cpu.max": "nonsense"}, math.inf),
        ("0::/", {}, math.inf),
    ],
)  # fmt: skip
def test_quotas_of_containers(
    own: str, files: dict[str, str], quota: float, tmp_path: Path
) -> None:
    groups = tmp_path / "cgroup"
    groups.write_text(f"12:memory:/\n{own}\n")
    assert container_quota(groups, group(tmp_path / "sys", files)) == quota


def test_no_quota_where_there_are_no_groups(tmp_path: Path) -> None:
    assert container_quota(tmp_path / "missing") == math.inf


def test_a_share_of_a_processor_is_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "container_quota", lambda: 0.5)
    assert available() == 1


@pytest.mark.parametrize("count", [1, 2, 4])
def test_results_come_in_order_whoever_is_first(count: int) -> None:
    set_threads(count)

    def slow_at_first(k: int) -> int:
        time.sleep(0.02 if k == 0 else 0)
        return k * k

    assert list(spread(slow_at_first, range(25))) == [k * k for k in range(25)]
    assert list(spread(slow_at_first, [])) == []


def test_work_is_shared_and_each_operation_has_one_thread() -> None:
    set_threads(2)
    torch.set_num_threads(3)
    meeting = threading.Barrier(2, timeout=30)

    def meet(_: int) -> tuple[str, int]:
        meeting.wait()  # two are here at the same time
        return threading.current_thread().name, torch.get_num_threads()

    names, numbers = zip(*spread(meet, range(2)), strict=True)
    assert len(set(names)) == 2
    assert set(numbers) == {1}
    assert torch.get_num_threads() == 3, "PyTorch's own setting is as it was"


def test_work_within_work_is_not_shared() -> None:
    set_threads(2)

    def outer(_: int) -> set[str]:
        return set(spread(lambda _: threading.current_thread().name, range(5)))

    assert all(len(names) == 1 for names in spread(outer, range(4)))


@pytest.mark.parametrize("count", [1, 2])
def test_an_error_ends_the_work(count: int) -> None:
    set_threads(count)
    begun = []

    def fail_at_three(k: int) -> int:
        begun.append(k)
        if k == 3:
            raise AemError("three")
        return k

    with pytest.raises(AemError, match="three"):
        list(spread(fail_at_three, range(1000)))
    assert len(begun) < 20
    assert list(spread(abs, [-1, -2, -3])) == [1, 2, 3], "and the pool goes on"


def test_gradients_are_recorded_as_they_are_for_the_caller() -> None:
    set_threads(2)
    x = torch.ones(3, requires_grad=True)
    assert all(y.requires_grad for y in spread(lambda k: k * x, range(4)))
    with torch.no_grad():
        assert not any(y.requires_grad for y in spread(lambda k: k * x, range(4)))


def test_the_setting_of_pytorch_comes_back_from_nested_and_concurrent_use() -> None:
    torch.set_num_threads(2)
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with alone():
            inside.set()
            leave.wait(30)

    other = threading.Thread(target=hold)
    with alone():
        other.start()
        inside.wait(30)
        assert torch.get_num_threads() == 1
        assert get_threads() == min(2, available())
    assert torch.get_num_threads() == 1, "another thread still counts on it"
    leave.set()
    other.join()
    with alone(), alone():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)
    with alone():
        pass
    assert torch.get_num_threads() == 1


FORKED = """
import os
from aem.base.threads import set_threads, spread
set_threads(2)
assert list(spread(abs, [-1, -2, -3])) == [1, 2, 3]
child = os.fork()
if child == 0:
    os._exit(0 if list(spread(abs, [-1, -2, -3])) == [1, 2, 3] else 1)
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_process_has_threads_of_its_own() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_program_lets_idle_threads_sleep() -> None:
    """Unless the user has said otherwise, and before PyTorch is loaded."""
    script = (
        "import os, sys; import aem.cli; assert 'torch' not in sys.modules;"
        "sys.argv = ['aem', '--help'];\n"
        "try: aem.cli.main()\nexcept SystemExit: pass\n"
        "print(os.environ['OMP_WAIT_POLICY'])"
    )
    for given, expected in ((None, "PASSIVE"), ("ACTIVE", "ACTIVE")):
        environment = {k: v for k, v in os.environ.items() if k != "OMP_WAIT_POLICY"}
        environment |= {} if given is None else {"OMP_WAIT_POLICY": given}
        done = subprocess.run(
            [sys.executable, "-c", script],
            env=environment, capture_output=True, text=True, timeout=100, check=True,
        )  # fmt: skip
        assert done.stdout.splitlines()[-1] == expected
