"""Files of earlier versions load, and mean what they meant."""

from pathlib import Path

import numpy as np
import pytest

from aem import Quadrature
from aem.base.files import FORMAT_VERSION, read_tensors, write_tensors
from aem.model.files import OF_A_TABLE
from aem.tables.model import TOLERANCE
from tests.support.kept_files import RUNS, about_models, about_stopped_run, machine, write_models

KEPT = sorted(path for path in (Path(__file__).parent / "kept").iterdir() if path.is_dir())
# Weights trained by another processor's arithmetic drift apart, and draws with them.
SCORES, TRAINED = 1e-5, 0.3
CHANCE = ("drawn", "weights")
# What a quadrature found agrees with what that of 0.1 found, which had other nodes, within the errors
# that both state. So do draws by inverting a CDF; samples, proposals and mixtures have the same bits.
INTEGRATED = ("log_prob", "log_density", "surprise", "cdf")
BY_INVERSION = ("plane-literal/drawn",)
TOLERANCES = {"table": TOLERANCE}  # of the models that are not scored to the default


def stated(name: str, found: dict[str, np.ndarray], answers: dict[str, np.ndarray]) -> float:
    """The errors of both versions together: none where nothing was integrated."""
    model, _, what = name.partition("/")
    if what not in INTEGRATED and name not in BY_INVERSION:
        return 0.0
    if f"{model}/error" not in answers:  # of a prior, scored to the default
        return 2 * Quadrature.tolerance
    return float(found[f"{model}/error"].max() + answers[f"{model}/error"].max())


def assert_answers(found: dict[str, np.ndarray], kept: Path, names: set[str]) -> None:
    """The same bits on the processor that wrote the answers, unless they are integrals."""
    with np.load(kept / "answers.npz") as file:
        answers = {name: file[name] for name in file if name.partition("/")[0] in names}
        same_machine = str(file["machine"]) == machine()
    assert found.keys() == answers.keys()
    for name, expected in answers.items():
        run, _, what = name.partition("/")
        allowed = stated(name, found, answers)
        if what == "error":
            tolerance = TOLERANCES.get(run, Quadrature.tolerance)
            assert bool((found[name] <= tolerance).all()), name
            assert np.array_equal(found[name] > 0, expected > 0), name
        elif same_machine or allowed:
            np.testing.assert_allclose(found[name], expected, rtol=0, atol=allowed, err_msg=name)
        elif run in RUNS:
            np.testing.assert_allclose(found[name], expected, atol=TRAINED, err_msg=name)
        elif what not in CHANCE:
            np.testing.assert_allclose(
                found[name], expected, rtol=SCORES, atol=SCORES, err_msg=name
            )
        else:
            assert found[name].shape == expected.shape
            assert np.isfinite(found[name]).all()


@pytest.mark.filterwarnings("ignore::aem.errors.AccuracyWarning")
@pytest.mark.parametrize("kept", KEPT, ids=lambda path: path.name)
def test_models_answer_as_the_version_that_wrote_them(kept: Path) -> None:
    found = about_models(kept)
    assert_answers(found, kept, {name.partition("/")[0] for name in found})


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("kept", KEPT, ids=lambda path: path.name)
def test_a_stopped_run_goes_on(kept: Path, name: str) -> None:
    assert_answers(about_stopped_run(name, kept), kept, {name})


@pytest.mark.filterwarnings("ignore::aem.errors.AccuracyWarning")
@pytest.mark.parametrize("kept", [*KEPT, None], ids=lambda path: path.name if path else "present")
def test_remarks_decide_nothing(kept: Path | None, tmp_path: Path) -> None:
    """Of files as they were written, and written again without remarks in the present format."""
    if kept is None:
        kept = tmp_path / "written"
        kept.mkdir()
        write_models(kept)
    bare = tmp_path / "bare"
    for path in (*kept.glob("*.aem"), *kept.glob("*.safetensors")):
        tensors, metadata = read_tensors(path, *OF_A_TABLE, "ensemble", "vae")
        assert metadata["format_version"] == FORMAT_VERSION
        write_tensors(bare / path.name, tensors, {**metadata, "about": {}})
    found, expected = about_models(bare), about_models(kept)
    assert found.keys() == expected.keys()
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
