from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from aem.data import miniboone, registry
from aem.data.splits import Floats
from aem.errors import AemError

DISCRETE = [7, 11]


def made_up_events(n: int) -> Floats:
    events = np.random.default_rng(0).normal(size=(n, 50))
    events[:, DISCRETE] = events[:, DISCRETE] > 0
    return events.round(5)


def write_text(path: Path, events: Floats, signal: int) -> Path:
    lines = ["".join(f"  {value:.6e}" for value in event) for event in events]
    path.write_text("\n".join([f"  {signal}  {len(events) - signal}", *lines, ""]))
    return path


def test_raw_text_gives_the_cleaned_signal(tmp_path: Path) -> None:
    events = made_up_events(60)
    events[3] = -999
    path = write_text(tmp_path / "MiniBooNE_PID.txt", events, signal=40)
    expected = np.delete(np.delete(events[:40], 3, axis=0), DISCRETE, axis=1)
    np.testing.assert_array_equal(miniboone.read_text(path), expected)


def test_recipe_keeps_the_order_of_rows() -> None:
    rows = np.random.default_rng(0).normal(3, 2, size=(100, 43))
    splits = miniboone.prepare(rows)
    known = rows[:90]
    expected = (rows - known.mean(axis=0)) / known.std(axis=0)
    np.testing.assert_allclose(splits.train, expected[:81], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(splits.validation, expected[81:90], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(splits.test, expected[90:], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("folder", ["data/miniboone", "miniboone"])
def test_maf_archive_with_fewer_rows_is_refused(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir(parents=True)
    np.save(tmp_path / folder / "data.npy", np.random.default_rng(0).normal(size=(100, 42)))
    message = "81 / 9 / 10 rows of 42 columns, expected 29,556 / 3,284 / 3,648 rows of 43"
    with pytest.raises(AemError, match=message):
        registry.load("miniboone", tmp_path)


def test_truncated_array_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "data.npy"
    np.save(path, np.zeros((100, 43)))
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(AemError, match=r"data\.npy"):
        miniboone.read_npy(path)


def test_array_that_is_no_table_is_refused() -> None:
    with pytest.raises(AemError, match=r"\(43,\)"):
        miniboone.prepare(np.zeros(43))


def test_text_that_ends_within_the_signal_is_refused(tmp_path: Path) -> None:
    path = write_text(tmp_path / "MiniBooNE_PID.txt", made_up_events(60), signal=70)
    with pytest.raises(AemError, match="announces 70 rows of signal but ends after 60"):
        miniboone.read_text(path)


def test_other_column_counts_are_refused(tmp_path: Path) -> None:
    path = write_text(tmp_path / "MiniBooNE_PID.txt", made_up_events(60)[:, :49], signal=40)
    with pytest.raises(AemError, match=r"has 49 columns, expected 50"):
        miniboone.read_text(path)


def test_text_without_the_counts_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "MiniBooNE_PID.txt"
    path.write_text("1.0 2.0 3.0\n")
    with pytest.raises(AemError, match=r"is not UCI's MiniBooNE_PID\.txt"):
        miniboone.read_text(path)


def test_subset_is_cut_to_the_columns_known_everywhere(tmp_path: Path) -> None:
    first, extra, val, test = np.random.default_rng(0).normal(size=(4, 6, 43))
    extra[:, [4, 16, 19]] = np.nan
    known = np.delete(np.arange(43), [4, 16, 19])
    np.savez(
        tmp_path / "subset.npz",
        train_first1523=first,
        extra_train_nan3=extra,
        val=val,
        test=test,
        cols40=known,
    )
    splits = miniboone.read_subset(tmp_path / "subset.npz")
    assert splits.train.shape == (12, 40)
    np.testing.assert_array_equal(splits.test, test[:, known].astype(np.float32))
    assert splits.columns[4] == "x5"


def test_subset_with_missing_values_is_refused(tmp_path: Path) -> None:
    zeros = np.zeros((6, 43))
    np.savez(
        tmp_path / "subset.npz",
        extra_train_nan3=np.full((6, 43), np.nan),
        cols40=np.arange(40),
        train_first1523=zeros,
        val=zeros,
        test=zeros,
    )
    with pytest.raises(AemError, match="train split of miniboone-40 has missing"):
        miniboone.read_subset(tmp_path / "subset.npz")


@pytest.mark.data
@pytest.mark.parametrize("name", ["miniboone", "miniboone-40"])
def test_real_miniboone_has_its_sizes(name: str, real_data: Callable[[str], Path]) -> None:
    registry.load(name, real_data(name))


@pytest.mark.data
def test_real_subset_agrees_with_the_published_splits(real_data: Callable[[str], Path]) -> None:
    root = real_data("miniboone-40")
    if not (root / "miniboone" / "test.npy").exists():
        pytest.skip("miniboone/test.npy is not under AEM_DATA")
    splits = registry.load("miniboone-40", root)
    columns = [int(name.removeprefix("x")) for name in splits.columns]
    published = np.load(root / "miniboone" / "test.npy")
    np.testing.assert_allclose(splits.test, published[:, columns], atol=1e-4)
