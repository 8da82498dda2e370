"""What a part of a split says of the whole."""

import torch

from aem.evaluation.summary import whole_split


def test_a_part_tells_of_the_whole_what_its_error_says() -> None:
    """Over many subsets: no bias, and the true mean within the error as often as it should be."""
    generator = torch.Generator().manual_seed(0)
    hits, off = 0, []
    for _ in range(400):
        theirs = 3 * torch.randn(1000, generator=generator, dtype=torch.float64)
        ours = theirs + 0.5 + 0.2 * torch.randn(1000, generator=generator, dtype=torch.float64)
        mean, spread = whole_split(ours[:50], theirs[:50], theirs)
        off.append(mean - 0.5)
        hits += abs(mean - 0.5) < spread
    assert abs(sum(off) / len(off)) < 0.02
    assert 0.92 < hits / 400 < 0.98
    alone = 2 * float(ours[:50].std() / 50**0.5)
    assert spread < alone / 3, "much better known than from the part alone"
