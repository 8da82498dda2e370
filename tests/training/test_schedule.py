from itertools import pairwise

import pytest

from aem.training.schedule import averaging_decay, cosine


def test_cosine_falls_from_the_peak_to_zero() -> None:
    rates = [cosine(step, 100, 2e-3) for step in range(101)]
    assert rates[0] == 2e-3 and rates[100] == 0
    assert rates[50] == pytest.approx(1e-3)
    assert all(a > b for a, b in pairwise(rates))
    assert cosine(150, 100, 2e-3) == 0, "and stays there"


def test_a_rate_may_rise_to_its_cosine() -> None:
    risen = [cosine(step, 100, 2e-3, rise=10) / cosine(step, 100, 2e-3) for step in range(99)]
    assert risen[:10] == pytest.approx([0.1 * k for k in range(1, 11)])
    assert risen[10:] == pytest.approx([1] * 89)


def test_early_averages_forget_faster() -> None:
    decays = [averaging_decay(step, 0.999) for step in range(20_000)]
    assert decays[0] == pytest.approx(0.1)
    assert all(a <= b for a, b in pairwise(decays))
    assert decays[-1] == 0.999
    assert averaging_decay(1000, 0.0) == 0, "no averaging"
