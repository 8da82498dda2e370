from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from aem.data import registry
from aem.data.sets import gas
from aem.data.splits import Floats
from aem.errors import AemError

HEADING = "Time (seconds), CO conc (ppm), Ethylene conc (ppm), sensor readings (16 channels)\n"


def made_up_readings(n: int) -> Floats:
    """Return sixteen sensors in eight pairs, each pair all but equal."""
    rng = np.random.default_rng(0)
    distinct = rng.normal(size=(n, 8))
    return np.hstack([distinct, 3 * distinct + 0.01 * rng.normal(size=(n, 8)) + 50])


def write_text(path: Path, readings: Floats) -> Path:
    lines = (
        f"{i / 100:.2f}    0.00    0.00    " + "   ".join(f"{x:.2f}" for x in row) + "   \n"
        for i, row in enumerate(readings)
    )
    path.write_text(HEADING + "".join(lines))
    return path


def test_raw_text_gives_the_sensors(tmp_path: Path) -> None:
    readings = made_up_readings(30).round(2)
    path = write_text(tmp_path / "ethylene_CO.txt", readings)
    np.testing.assert_array_equal(gas.read_text(path), readings)


def test_recipe_keeps_a_quarter_and_one_of_each_pair() -> None:
    splits = gas.prepare(made_up_readings(4001))
    assert splits.columns == tuple(f"sensor_{i}" for i in range(9, 17))
    assert [len(splits.train), len(splits.validation), len(splits.test)] == [810, 90, 100]
    rows = np.vstack([splits.train, splits.validation, splits.test]).astype(np.float64)
    np.testing.assert_allclose(rows.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(rows.std(axis=0, ddof=1), 1, atol=1e-6)


def test_the_draw_is_repeatable() -> None:
    first, second = gas.prepare(made_up_readings(4000)), gas.prepare(made_up_readings(4000))
    np.testing.assert_array_equal(first.train, second.train)


def test_published_sizes_follow_from_the_length_of_the_raw_file() -> None:
    rows = np.random.default_rng(0).normal(size=(4_208_261, 1))
    splits = gas.prepare(rows)
    found = (len(splits.train), len(splits.validation), len(splits.test))
    assert found == registry.find("gas").rows


def test_correlated_columns_are_dropped_first_one_first() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, 500))
    assert gas.uncorrelated(np.column_stack([a, b, a, -a, a])) == [1, 3, 4]


def test_constant_sensor_is_refused() -> None:
    readings = made_up_readings(400)
    readings[:, 3] = 7.0
    with pytest.raises(AemError, match="constant"):
        gas.prepare(readings)


def test_other_column_counts_are_refused(tmp_path: Path) -> None:
    path = write_text(tmp_path / "ethylene_CO.txt", made_up_readings(30)[:, :15])
    with pytest.raises(AemError, match=r"ethylene_CO\.txt has 18 columns, expected 19"):
        gas.read_text(path)


def test_truncated_text_is_refused(tmp_path: Path) -> None:
    path = write_text(tmp_path / "ethylene_CO.txt", made_up_readings(30))
    path.write_text(path.read_text()[:-100])
    with pytest.raises(AemError, match=r"incomplete row, the first in line 31"):
        gas.read_text(path)


def test_words_are_refused(tmp_path: Path) -> None:
    path = write_text(tmp_path / "ethylene_CO.txt", made_up_readings(30))
    path.write_text(path.read_text() + "the end\n")
    with pytest.raises(AemError, match=r"ethylene_CO\.txt is not a table of 19 columns"):
        gas.read_text(path)


def test_empty_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ethylene_CO.txt").touch()
    with pytest.raises(AemError, match=r"ethylene_CO\.txt"):
        gas.read_text(tmp_path / "ethylene_CO.txt")


def test_subset_is_taken_as_it_is(tmp_path: Path) -> None:
    train, valid, test = np.random.default_rng(0).normal(size=(3, 5, 8))
    np.savez(tmp_path / "gas_subset.npz", train=train, valid=valid, test=test, mu=0, sd=1)
    splits = gas.read_subset(tmp_path / "gas_subset.npz")
    np.testing.assert_array_equal(splits.validation, valid.astype(np.float32))
    assert splits.columns == tuple(f"x{i}" for i in range(8))


def test_broken_subsets_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "gas_subset.npz"
    np.savez(path, train=np.zeros((5, 8)), test=np.zeros((5, 8)))
    with pytest.raises(AemError, match=r"gas_subset\.npz.*valid"):
        gas.read_subset(path)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(AemError, match=r"gas_subset\.npz"):
        gas.read_subset(path)
    np.savez(path, train=np.zeros((5, 8)), valid=np.zeros((5, 7)), test=np.zeros((5, 8)))
    with pytest.raises(AemError, match=r"validation split .* \(5, 7\).* 8 columns"):
        gas.read_subset(path)


def test_pickled_objects_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "gas_subset.npz"
    objects = np.array([{}, None], dtype=object)
    np.savez(path, train=objects, valid=objects, test=objects)
    with pytest.raises(AemError, match=r"gas_subset\.npz"):
        gas.read_subset(path)


@pytest.mark.data
def test_real_subset_has_its_sizes(real_data: Callable[[str], Path]) -> None:
    splits = registry.load("gas-10k", real_data("gas-10k"))
    assert splits.train.dtype == np.float32
    np.testing.assert_allclose(splits.train.mean(axis=0), 0, atol=1e-4)


@pytest.mark.data
def test_real_gas_has_its_sizes(real_data: Callable[[str], Path]) -> None:
    registry.load("gas", real_data("gas"))
