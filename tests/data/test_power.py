import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from aem.data import registry
from aem.data.sets import power
from aem.data.splits import Floats
from aem.errors import AemError

HEADING = (
    "Date;Time;Global_active_power;Global_reactive_power;Voltage;Global_intensity;"
    "Sub_metering_1;Sub_metering_2;Sub_metering_3\r\n"
)
LINES = (
    HEADING
    + "16/12/2006;17:24:00;4.216;0.418;234.840;18.400;0.000;1.000;17.000\r\n"
    + "16/12/2006;17:25:00;?;?;?;?;?;?;\r\n"
    + "17/12/2006;00:01:00;5.360;0.436;233.630;23.000;0.000;2.000;16.000\r\n"
)
ROWS = [
    [4.216, 0.418, 234.84, 18.4, 0.0, 1.0, 17.0, 17 * 60 + 24],
    [5.36, 0.436, 233.63, 23.0, 0.0, 2.0, 16.0, 1],
]


def write_zip(path: Path, text: str = LINES) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("household_power_consumption.txt", text)
    return path


def made_up_rows(n: int) -> Floats:
    return np.random.default_rng(0).normal(size=(n, 8)) * [1, 1, 3, 2, 5, 5, 5, 400]


def test_raw_file_gives_the_complete_rows_in_order(tmp_path: Path) -> None:
    text = tmp_path / "household_power_consumption.txt"
    text.write_text(LINES, newline="")
    archive = write_zip(tmp_path / "household_power_consumption.zip")
    np.testing.assert_array_equal(power.read_text(text), ROWS)
    np.testing.assert_array_equal(power.read_zip(archive), ROWS)


def test_recipe_draws_in_the_published_order() -> None:
    raw = made_up_rows(1000)

    rng = np.random.RandomState(42)
    shuffled = raw.copy()
    rng.shuffle(shuffled)
    voltage, active, meters = rng.rand(1000), rng.rand(1000), rng.rand(1000, 3)
    expected = shuffled[:, [0, 2, 4, 5, 6, 7]]
    expected[:, 0] += 0.001 * active
    expected[:, 1] += 0.01 * voltage
    expected[:, 2:5] += meters
    expected = (expected - expected[:900].mean(axis=0)) / expected[:900].std(axis=0)

    splits = power.prepare(raw, part_of_minute=False)
    assert splits.steps[:5] == (0, 0, 0, 0, 0)
    assert splits.steps[5] == pytest.approx(1 / shuffled[:900, 7].std())
    assert [len(splits.train), len(splits.validation), len(splits.test)] == [810, 90, 100]
    found = np.vstack([splits.train, splits.validation, splits.test])
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_the_two_variants_differ_in_time_alone() -> None:
    raw = made_up_rows(1000)
    raw[:, -1] = np.arange(1000)
    literal = power.prepare(raw, "power-maf", part_of_minute=False)
    smooth = power.prepare(raw, "power", part_of_minute=True)
    np.testing.assert_array_equal(literal.test[:, :-1], smooth.test[:, :-1])
    assert (literal.test[:, -1] != smooth.test[:, -1]).any()
    assert (literal.name, smooth.name) == ("power-maf", "power")


def test_preparing_leaves_the_raw_rows_alone() -> None:
    raw = made_up_rows(100)
    before = raw.copy()
    power.prepare(raw)
    np.testing.assert_array_equal(raw, before)


def test_maf_archive_is_read(tmp_path: Path) -> None:
    np.save(tmp_path / "data.npy", made_up_rows(20))
    np.testing.assert_array_equal(power.read_npy(tmp_path / "data.npy"), made_up_rows(20))


def test_other_column_counts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(AemError, match=r"8 columns, found an array of \(100, 7\)"):
        power.prepare(made_up_rows(100)[:, :7])
    lacking = tmp_path / "lacking.txt"
    lacking.write_text(LINES.replace(";Voltage", ""))
    with pytest.raises(AemError, match=r"lacking\.txt"):
        power.read_text(lacking)


def test_short_row_is_refused(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "short.zip", LINES + "17/12/2006;00:02:00;5.374;0.4")
    with pytest.raises(AemError, match=r"short\.zip"):
        power.read_zip(path)


def test_truncated_zip_is_refused(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "half.zip")
    path.write_bytes(path.read_bytes()[:150])
    with pytest.raises(AemError, match=r"half\.zip"):
        power.read_zip(path)


def test_zip_of_something_else_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(AemError, match=r"other\.zip.*household_power_consumption\.txt"):
        power.read_zip(tmp_path / "other.zip")


def test_fewer_rows_than_published_are_refused(tmp_path: Path) -> None:
    (tmp_path / "power").mkdir()
    minutes = "".join(
        f"17/12/2006;00:{i:02}:00;{i}.36;0.4;233.{i};23.0;{i};{i};{i}\n" for i in range(60)
    )
    write_zip(tmp_path / "power" / "household_power_consumption.zip", HEADING + minutes)
    with pytest.raises(AemError, match=r"49 / 5 / 6 rows .* 1,659,917 / 184,435 / 204,928 rows"):
        registry.load("power", tmp_path)


@pytest.mark.data
@pytest.mark.parametrize("name", ["power", "power-maf"])
def test_real_power_is_standardised(name: str, real_data: Callable[[str], Path]) -> None:
    splits = registry.load(name, real_data(name))  # checks the published sizes
    known = np.vstack([splits.train, splits.validation]).astype(np.float64)
    np.testing.assert_allclose(known.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(known.std(axis=0), 1, atol=1e-6)
    minutes = len(np.unique(splits.test[:, -1]))
    assert (minutes == 1440) == (name == "power-maf")
