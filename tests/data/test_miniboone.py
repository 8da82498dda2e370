import io
import re
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aem.data import registry
from aem.data.sets import miniboone
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


@pytest.fixture(params=["data/miniboone", "miniboone"])
def npy(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Where data.npy lies: in MAF's unpacked archive, or by itself."""
    folder = tmp_path / str(request.param)
    folder.mkdir(parents=True)
    return folder / "data.npy"


def assert_refused(root: Path, message: str) -> None:
    with pytest.raises(AemError, match=message) as refused:
        registry.load("miniboone", root)
    assert "\n" not in str(refused.value)


def test_a_table_of_fewer_rows_is_refused(npy: Path, tmp_path: Path) -> None:
    np.save(npy, np.random.default_rng(0).normal(size=(100, 43)))
    sizes = "81 / 9 / 10 rows of 43 columns, expected 29,556 / 3,284 / 3,648 rows of 43"
    assert_refused(tmp_path, sizes)


@pytest.mark.parametrize("shape", [(100, 42), (100, 44), (43,), (), (4, 5, 43)])
def test_an_array_of_another_shape_is_refused(
    npy: Path, tmp_path: Path, shape: tuple[int, ...]
) -> None:
    np.save(npy, np.zeros(shape))
    assert_refused(tmp_path, re.escape(f"data.npy holds an array of shape {shape}, expected rows"))


@pytest.mark.parametrize("rows", [0, 5])
def test_a_table_too_small_to_split_is_refused(npy: Path, tmp_path: Path, rows: int) -> None:
    np.save(npy, np.zeros((rows, 43)))
    assert_refused(tmp_path, f"{rows} rows are too few to hold out a tenth")


@pytest.mark.parametrize("kept", [0, 40, 130, -8])
def test_a_truncated_array_is_refused(npy: Path, tmp_path: Path, kept: int) -> None:
    np.save(npy, np.zeros((100, 43)))
    npy.write_bytes(npy.read_bytes()[:kept])
    assert_refused(tmp_path, r"data\.npy is not an \.npy file of numbers, or is damaged")


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.full((100, 43), "signal"), "holds <U6 where numbers were expected"),
        (np.zeros((100, 43), dtype=complex), "holds complex128 where numbers were expected"),
        (np.full((100, 43), None), "Object arrays cannot be loaded"),
    ],
)
def test_an_array_of_no_real_numbers_is_refused(
    npy: Path, tmp_path: Path, array: Any, message: str
) -> None:
    np.save(npy, array)
    assert_refused(tmp_path, message)


@pytest.mark.parametrize("hole", [np.nan, np.inf])
@pytest.mark.parametrize("row", [5, -1])
def test_holes_are_refused(npy: Path, tmp_path: Path, hole: float, row: int) -> None:
    rows = np.random.default_rng(0).normal(size=(100, 43))
    rows[row, 6] = hole
    np.save(npy, rows)
    assert_refused(tmp_path, "column 6 has missing or infinite values")


def test_constant_columns_are_refused(npy: Path, tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(100, 43))
    rows[:, [3, 6]] = 1.0
    np.save(npy, rows)
    assert_refused(tmp_path, "columns 3, 6 have one constant value")


@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz"])
def test_an_archive_by_the_name_of_the_array_is_refused(
    npy: Path, tmp_path: Path, kind: str
) -> None:
    pack(tmp_path, kind).rename(npy)
    assert_refused(tmp_path, rf"data\.npy is not an .*it is a {kind[:3]} archive")


def test_an_archive_beside_the_array_is_not_read(npy: Path, tmp_path: Path) -> None:
    pack(tmp_path, "tar.gz").rename(npy.with_name("data.tar.gz"))
    assert_refused(tmp_path, r"lacks data/miniboone/data\.npy: run `aem data fetch miniboone`")
    np.save(npy, np.zeros(43))
    assert_refused(tmp_path, "holds an array of shape")


def pack(folder: Path, kind: str) -> Path:
    """An archive as MAF's: a folder `data` that holds the table."""
    member, path = "data/miniboone/data.npy", folder / f"made.{kind}"
    content = io.BytesIO()
    np.save(content, np.zeros((100, 43)))
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as bundle:
            bundle.writestr(member, content.getvalue())
        return path
    entry = tarfile.TarInfo(member)
    entry.size = len(content.getvalue())
    with tarfile.open(path, "w:gz" if kind == "tar.gz" else "w") as tar:
        tar.addfile(entry, io.BytesIO(content.getvalue()))
    return path


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


@pytest.mark.data
@pytest.mark.parametrize(("name", "place"), [("val", 1), ("test", 2)])
def test_real_table_agrees_with_the_published_splits(
    name: str, place: int, real_data: Callable[[str], Path]
) -> None:
    folder = real_data("miniboone") / "miniboone"
    for file in ("data.npy", f"{name}.npy"):
        if not (folder / file).exists():
            pytest.skip(f"miniboone/{file} is not under AEM_DATA")
    published = np.load(folder / f"{name}.npy")
    found = miniboone.split(miniboone.read_npy(folder / "data.npy"))[place]
    np.testing.assert_allclose(found, published, rtol=0, atol=1e-14)
