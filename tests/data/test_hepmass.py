import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from aem.data import registry
from aem.data.sets import hepmass
from aem.data.splits import Floats
from aem.errors import AemError

DISCRETE = [5, 9, 13, 17, 21]
CONTINUOUS = [i for i in range(26) if i not in DISCRETE]


def made_up_events(n: int, seed: int) -> Floats:
    """Return a label and 27 features, five of which have two values only."""
    rng = np.random.default_rng(seed)
    label = rng.integers(2, size=(n, 1)).astype(np.float64)
    features = rng.normal(size=(n, 27))
    features[:, DISCRETE] = features[:, DISCRETE] > 0
    return np.hstack([label, features])


def write_csv(path: Path, events: Floats, named_features: int) -> Path:
    """Write UCI's format; its training file names one feature less than there are values."""
    heading = "# label," + ",".join(f"f{i}" for i in range(named_features))
    lines = [",".join(f"{value:.18e}" for value in event) for event in events]
    text = "\n".join([heading, *lines, ""])
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


def test_signal_of_the_first_rows_is_read(tmp_path: Path) -> None:
    events = made_up_events(50, seed=0)
    expected = events[:40][events[:40, 0] == 1, 1:27]
    for name in ("1000_train.csv", "1000_train.csv.gz"):
        path = write_csv(tmp_path / name, events, named_features=26)
        np.testing.assert_allclose(hepmass.read_signal(path, max_rows=40), expected, rtol=1e-15)
    path = write_csv(tmp_path / "1000_test.csv", events, named_features=27)
    np.testing.assert_allclose(hepmass.read_signal(path, max_rows=40), expected, rtol=1e-15)


def test_recipe_keeps_continuous_columns_and_the_order_of_rows(tmp_path: Path) -> None:
    train, test = made_up_events(400, seed=0), made_up_events(300, seed=1)
    splits = hepmass.read(
        write_csv(tmp_path / "1000_train.csv", train, named_features=26),
        write_csv(tmp_path / "1000_test.csv", test, named_features=27),
    )
    assert splits.columns == tuple(f"f{i}" for i in CONTINUOUS)
    signal = train[train[:, 0] == 1][:, [1 + i for i in CONTINUOUS]]
    mean, deviation = signal.mean(axis=0), signal.std(axis=0, ddof=1)
    held_out = int(0.1 * len(signal))
    assert len(splits.validation) == held_out
    expected = (signal - mean) / deviation
    np.testing.assert_allclose(splits.train, expected[:-held_out], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(splits.validation, expected[-held_out:], rtol=1e-5, atol=1e-7)
    expected = (test[test[:, 0] == 1][:, [1 + i for i in CONTINUOUS]] - mean) / deviation
    np.testing.assert_allclose(splits.test, expected, rtol=1e-5, atol=1e-7)


def test_other_column_counts_are_refused(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "1000_train.csv", made_up_events(9, 0)[:, :26], named_features=25)
    with pytest.raises(AemError, match=r"1000_train\.csv has 26 columns, expected 27 or 28"):
        hepmass.read_signal(path, max_rows=9)


def test_missing_label_is_refused(tmp_path: Path) -> None:
    events = np.random.default_rng(0).normal(size=(9, 28))
    path = write_csv(tmp_path / "1000_train.csv", events, named_features=26)
    with pytest.raises(AemError, match=r"1000_train\.csv .* labels 0 and 1"):
        hepmass.read_signal(path, max_rows=9)


def test_truncated_files_are_refused(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "1000_train.csv.gz", made_up_events(500, 0), named_features=26)
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(AemError, match=r"1000_train\.csv\.gz"):
        hepmass.read_signal(path, max_rows=500)
    path = write_csv(tmp_path / "1000_train.csv", made_up_events(500, 0), named_features=26)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(AemError, match="incomplete row, the first in line 501"):
        hepmass.read_signal(path, max_rows=500)


@pytest.mark.parametrize("folder", ["data/hepmass", "data/HEPMASS", "hepmass"])
def test_fewer_rows_than_published_are_refused(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir(parents=True)
    for name in ("1000_train.csv", "1000_test.csv"):
        write_csv(tmp_path / folder / name, made_up_events(100, 0), named_features=27)
    with pytest.raises(AemError, match="expected 315,123 / 35,013 / 174,987 rows of 21 columns"):
        registry.load("hepmass", tmp_path)


def test_subset_loses_its_last_column_and_a_tenth_of_train(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    train, test = rng.normal(size=(50, 22)), rng.normal(size=(30, 22))
    np.savez(tmp_path / "hepmass_subset.npz", train=train, test=test)
    splits = hepmass.read_subset(tmp_path / "hepmass_subset.npz")
    np.testing.assert_array_equal(splits.validation, train[45:, :21].astype(np.float32))
    assert (splits.train.shape, splits.test.shape) == ((45, 21), (30, 21))


def test_narrow_subset_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "hepmass_subset.npz", train=np.zeros((50, 20)), test=np.zeros((50, 22)))
    with pytest.raises(AemError, match=r"train has shape \(50, 20\)"):
        hepmass.read_subset(tmp_path / "hepmass_subset.npz")


@pytest.mark.data
@pytest.mark.parametrize("name", ["hepmass", "hepmass-5k"])
def test_real_hepmass_has_its_sizes(name: str, real_data: Callable[[str], Path]) -> None:
    splits = registry.load(name, real_data(name))
    known = np.vstack([splits.train, splits.validation]).astype(np.float64)
    np.testing.assert_allclose(known.mean(axis=0), 0, atol=1e-4)
