"""What every transform promises: an inverse, a determinant, gradients, and a record of itself."""

import json
from typing import Any

import pytest
import torch
from torch import Tensor

from aem.errors import AemError
from aem.model.transforms.base import Chain, TableTransform, Transform
from aem.model.transforms.records import KINDS, from_records, to_records
from tests.support.transforms import EVERY, FEATURES, OF_TABLES, Asinh, rows

every = pytest.mark.parametrize("name", EVERY)
of_tables = pytest.mark.parametrize("name", OF_TABLES)


@pytest.fixture(autouse=True)
def written_by_a_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line of registration is all that a transform of one's own takes."""
    monkeypatch.setitem(KINDS, Asinh.kind, Asinh)


def jacobians(transform: Transform, x: Tensor) -> Tensor:
    """dy/dx of each row by autograd."""
    each = [torch.autograd.functional.jacobian(transform.forward, row) for row in x]
    assert all(isinstance(jacobian, Tensor) for jacobian in each)
    return torch.stack(each)


def test_every_kind_is_tested() -> None:
    assert KINDS.keys() == OF_TABLES.keys()
    for name, transform in OF_TABLES.items():
        assert transform.kind == name
        assert type(transform) is KINDS[name]


@every
def test_the_inverse_undoes_it(name: str) -> None:
    transform, x = EVERY[name], rows()
    there = transform.forward(x)
    assert there.shape == x.shape
    assert there.dtype == torch.float64
    torch.testing.assert_close(transform.inverse(there), x, rtol=1e-9, atol=1e-6)
    torch.testing.assert_close(transform.forward(transform.inverse(there)), there)


@every
def test_log_det_is_that_of_the_jacobian(name: str) -> None:
    transform, x = EVERY[name], rows()
    expected = torch.linalg.slogdet(jacobians(transform, x)).logabsdet
    torch.testing.assert_close(transform.log_det(x), expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(transform.log_slopes(x).sum(-1), transform.log_det(x))


@every
def test_gradients_flow_through_it(name: str) -> None:
    """Those of its own formula, which finite differences confirm."""
    transform, x = EVERY[name], rows(6).requires_grad_()
    if name == "offset":  # 1.6e9 leaves too few digits for a finite difference
        jacobian = jacobians(transform, x.detach())
        assert torch.equal(jacobian, torch.eye(FEATURES, dtype=x.dtype).expand_as(jacobian))
    else:
        assert torch.autograd.gradcheck(transform.forward, x, eps=1e-7, atol=1e-5, rtol=1e-3)
    transform.forward(x).sum().backward()
    assert x.grad is not None
    assert bool(x.grad.isfinite().all())


@every
def test_rows_may_stand_in_any_shape(name: str) -> None:
    transform, x = EVERY[name], rows(12)
    for shape in ((FEATURES,), (2, 6, FEATURES), (0, FEATURES)):
        some = x.flatten()[: torch.Size(shape).numel()].reshape(shape)
        flat = some.reshape(-1, FEATURES)
        for map_ in (transform.forward, transform.inverse, transform.log_slopes):
            assert map_(some).shape == some.shape
            torch.testing.assert_close(map_(some).reshape(-1, FEATURES), map_(flat))


@of_tables
def test_its_record_returns_from_json_to_the_last_bit(name: str) -> None:
    transform, x = OF_TABLES[name], rows()
    for chain in (Chain((transform,)), Chain((transform, transform))):
        text = json.dumps(to_records(chain))
        again = from_records(json.loads(text), FEATURES)
        assert again == chain
        assert json.dumps(to_records(again)) == text
        assert torch.equal(again.forward(x), chain.forward(x))
        assert torch.equal(again.inverse(x), chain.inverse(x))
        assert torch.equal(again.log_slopes(x), chain.log_slopes(x))


def refusal(record: Any, features: int = FEATURES) -> str:
    with pytest.raises(AemError) as refused:
        from_records([record], features)
    sentence = str(refused.value)
    assert "\n" not in sentence
    assert sentence
    return sentence


WRONG: tuple[Any, ...] = (
    None, "1", True, {}, 0.5, -1, [None], [[]], 10**400, float("nan"), [float("inf")],
)  # fmt: skip


def damaged(transform: TableTransform) -> list[dict[str, Any]]:
    """The record of a transform with one thing wrong each."""
    record: dict[str, Any] = json.loads(json.dumps(transform.record()))
    broken = [{**record, "other": 1}]
    for field in record.keys() - {"kind"}:
        broken.append({k: v for k, v in record.items() if k != field})
        broken += [{**record, field: value} for value in WRONG]
    return broken


@of_tables
def test_damaged_records_are_refused_in_a_sentence(name: str) -> None:
    for record in damaged(OF_TABLES[name]):
        refusal(record)


@of_tables
def test_tables_of_another_width_are_refused(name: str) -> None:
    record = OF_TABLES[name].record()
    assert "column" in refusal(record, 1)
    if "column" not in record:  # those are of one column, whatever the others
        assert f"{FEATURES}" in refusal(record, FEATURES + 1)


@pytest.mark.parametrize(
    ("records", "said"),
    [
        (None, "'transforms' is not a list"),
        ("offset", "'transforms' is not a list"),
        ({"kind": "offset"}, "'transforms' is not a list"),
        ([1], "there is no transform '1'"),
        ([{}], "there is no transform 'None'"),
        ([{"kind": ["offset"]}], "there is no transform"),
        ([{"kind": "spline"}], "'spline'; known: .*offset.* the file may be from a newer version"),
    ],
)
def test_what_is_no_record_is_refused(records: Any, said: str) -> None:
    with pytest.raises(AemError, match=said):
        from_records(records, FEATURES)
