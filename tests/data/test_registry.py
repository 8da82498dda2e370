import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from aem.data import registry
from aem.data.digest import content_sha256
from aem.data.info import SplitSizes, data_root
from aem.data.listing import listing
from aem.data.splits import TableSplits
from aem.errors import AemError

NAMES = [info.name for info in registry.datasets()]


def splits_of(rows: SplitSizes, columns: int) -> TableSplits:
    train, validation, test = (np.zeros((n, columns), dtype=np.float32) for n in rows)
    return TableSplits("made-up", train, validation, test, tuple(f"x{i}" for i in range(columns)))


def test_every_data_set_of_the_experiments_is_there() -> None:
    assert {"power", "power-maf", "gas", "hepmass", "miniboone", "bsds300", "mnist"} <= set(NAMES)
    assert {"gas-10k", "hepmass-5k", "miniboone-40"} <= set(NAMES)
    assert len(NAMES) == len(set(NAMES))


@pytest.mark.parametrize("info", registry.datasets(), ids=NAMES)
def test_every_data_set_says_what_it_is_and_how_to_get_it(info: registry.DatasetInfo) -> None:
    assert info.description
    assert info.licence
    assert info.url.startswith("http")
    assert info.how_to_get
    assert info.rows.train > 0
    for source in info.sources:
        for file in source.files:
            assert not Path(file.path).is_absolute()


def test_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(AemError, match="unknown data set 'powr'; known: power, power-maf"):
        registry.load("powr")


def test_root_is_the_argument_then_the_variable_then_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AEM_DATA", str(tmp_path / "variable"))
    assert data_root(tmp_path / "argument") == tmp_path / "argument"
    assert data_root() == tmp_path / "variable"
    monkeypatch.delenv("AEM_DATA")
    assert data_root() == Path.home() / ".cache" / "aem"


@pytest.mark.parametrize("name", NAMES)
def test_absent_data_set_is_reported_with_its_file_and_remedy(name: str, tmp_path: Path) -> None:
    found = registry.status(name, tmp_path)
    assert not found.present
    with pytest.raises(AemError, match=f"{name} is not under") as error:
        registry.load(name, tmp_path)
    assert found.missing[0].path in str(error.value)
    assert registry.find(name).how_to_get in str(error.value)


def test_published_sizes_are_checked() -> None:
    registry.check_sizes(splits_of(SplitSizes(5, 2, 3), 4), SplitSizes(5, 2, 3), 4)
    message = "5 / 2 / 3 rows of 4 columns, expected 5 / 2 / 4 rows of 4 columns"
    with pytest.raises(AemError, match=message):
        registry.check_sizes(splits_of(SplitSizes(5, 2, 3), 4), SplitSizes(5, 2, 4), 4)
    with pytest.raises(AemError, match="of 4 columns, expected 5 / 2 / 3 rows of 6 columns"):
        registry.check_sizes(splits_of(SplitSizes(5, 2, 3), 4), SplitSizes(5, 2, 3), 6)


def test_load_reads_what_has_the_published_sizes(tmp_path: Path) -> None:
    (tmp_path / "gas").mkdir()
    tables = np.random.default_rng(0).normal(size=(3, 10_000, 8)).astype(np.float32)
    np.savez(tmp_path / "gas" / "gas_subset.npz", train=tables[0], valid=tables[1], test=tables[2])
    assert registry.status("gas-10k", tmp_path).present
    splits = registry.load("gas-10k", tmp_path)
    np.testing.assert_array_equal(splits.test, tables[2])


def test_splits_with_missing_values_are_refused() -> None:
    table = np.zeros((3, 2), dtype=np.float32)
    with pytest.raises(AemError, match="validation split of t has missing or infinite"):
        TableSplits("t", table, table + np.float32(np.inf), table, ("a", "b"))


def test_listing_is_plain_data(tmp_path: Path) -> None:
    entries = listing(tmp_path)
    assert [entry["name"] for entry in entries] == NAMES
    assert json.loads(json.dumps(entries)) == entries
    assert not any(entry["present"] for entry in entries)


def test_folder_digest_depends_on_names_and_contents(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "a").write_text("1")
    first = content_sha256(tmp_path)
    assert first == content_sha256(tmp_path)
    (tmp_path / "below" / "a").write_text("2")
    assert first != content_sha256(tmp_path)
    (tmp_path / "below" / "a").rename(tmp_path / "below" / "b")
    (tmp_path / "below" / "b").write_text("1")
    assert first != content_sha256(tmp_path)


@pytest.mark.data
@pytest.mark.parametrize("name", NAMES)
def test_real_files_have_their_checksums(name: str, real_data: Callable[[str], Path]) -> None:
    root = real_data(name)
    source = registry.status(name, root).source
    assert source is not None
    for file in source.files:
        if file.sha256 is not None:
            assert content_sha256(root / file.path) == file.sha256
