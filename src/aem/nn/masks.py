"""Degrees and masks: which unit may depend on which input (paper, appendix A)."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from aem.errors import AemError
from aem.nn.rowwise import linear


def hidden_degrees(features: int, hidden: int, *, conditional: bool = False) -> Int[Tensor, " H"]:
    """Return the degree of each hidden unit: how many leading inputs it may depend on.

    The paper assigns d_k = (k − 1) mod (D − 1) + 1. Units are exchangeable, so we keep that
    multiset but sort it: equal degrees become contiguous, every mask block-triangular, and one more
    feature costs only its own units when sampling (`aem.nn.incremental`).

    The first feature depends on no input, so without a conditioning vector no unit serves it. With
    one, p(x_1 | c) must see c: units of degree 0 (context alone) join the cycle. D = 1 has no
    other.

    Parameters
    ----------
    features
        D, the number of inputs.
    hidden
        H, the number of hidden units, D at least.
    conditional
        whether there is a conditioning vector.
    """
    if hidden < features:
        raise AemError(
            f"hidden width {hidden} is below the number of features {features}: "
            "some features would have no hidden unit of their degree and their values would be lost"
        )
    lowest = 0 if conditional or features == 1 else 1
    degrees = torch.arange(hidden) % (features - lowest) + lowest if features > 1 else None
    return torch.zeros(hidden, dtype=torch.long) if degrees is None else degrees.sort().values


class MaskedLinear(nn.Linear):
    """A linear layer with weight (i, j) only where out_degree i ≥ (strict: >) in_degree j.

    The other weights are zero from the start, receive no gradient, and remain zero.

    Parameters
    ----------
    in_degrees
        the degree of each input.
    out_degrees
        the degree of each output.
    strict
        whether an output may only see inputs of lower degree, as the last layer's.
    """

    mask: Tensor

    def __init__(
        self, in_degrees: Int[Tensor, " I"], out_degrees: Int[Tensor, " O"], *, strict: bool = False
    ) -> None:
        super().__init__(len(in_degrees), len(out_degrees))
        out, inp = out_degrees[:, None], in_degrees[None, :]
        mask = out > inp if strict else out >= inp
        # The mask follows from the configuration, so it is not part of a saved model.
        self.register_buffer("mask", mask.to(self.weight.dtype), persistent=False)
        self.erase_masked()
        self.register_load_state_dict_post_hook(_erase_masked)  # type: ignore[no-untyped-call]

    @torch.no_grad()
    def erase_masked(self) -> None:
        """Set every masked weight to zero."""
        self.weight.mul_(self.mask)

    def forward(self, x: Float[Tensor, "*B I"]) -> Float[Tensor, "*B O"]:
        """Apply the masked layer."""
        return linear(x, self.weight * self.mask, self.bias)


def _erase_masked(layer: nn.Module, _: object) -> None:
    """Erase masked weights after loading, because files of early versions have others there."""
    assert isinstance(layer, MaskedLinear)
    layer.erase_masked()
