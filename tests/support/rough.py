"""Small models with rough energies, and energies given by a formula."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from aem import AEM, ModelConfig
from aem.conditionals.batch import Conditionals, EnergyForm
from aem.conditionals.proposals.base import Proposal
from aem.conditionals.proposals.gaussian import GaussianMixture
from aem.conditionals.proposals.uniform import FixedUniform
from aem.config import PROPOSALS
from aem.model.transforms.affine import Affine
from aem.nn.energy import EnergyNetwork


def rough_model(
    energy: EnergyForm = "relative",
    proposal: str = "mixture",
    context: int = 0,
    features: int = 2,
    size: float = 2.0,
    seed: int = 0,
    top: float = 20.0,
    energy_hidden: int = 16,
    **changes: Any,
) -> AEM:
    """Random networks with enlarged weights; a literal one grows in both tails, so that Z exists."""
    torch.manual_seed(seed)
    if PROPOSALS[proposal].bounded:
        changes = {"bounds": ((-3.0, 5.0),) * features, **changes}
    config = ModelConfig(
        features=features,
        context_features=context,
        hidden=16,
        blocks=1,
        gamma=4,
        energy=energy,
        energy_hidden=energy_hidden,
        energy_blocks=1,
        components=3,
        min_scale=0.05,
        proposal=proposal,
        frequencies=4,
        **changes,
    )
    shift, scale = torch.linspace(0.5, 1.0, features), torch.linspace(1.5, 2.0, features)
    frequencies = torch.tensor([1.0, 3.0, 9.0, top]).expand(features, -1).clone()
    model = AEM(config, standardisation=Affine(shift, scale), frequencies=frequencies).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1:
                literal_block = energy == "literal" and name.startswith("energy.blocks")
                spread = 0.02 if literal_block else size if name.startswith("energy") else 1.0
                parameter.normal_(0, spread / parameter.shape[-1] ** 0.5)
        if energy == "literal":
            model.energy.final.weight.abs_().add_(1.0)
    return model


def rows_of(model: AEM, count: int, seed: int = 1) -> Tensor:
    """Rows near where the model has mass."""
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(count, model.config.features, generator=generator, dtype=torch.float64)
    return model.in_units(0.8 * z)


def flat_conditionals(model: AEM, count: int, seed: int = 1) -> Conditionals:
    """The conditionals of some rows, in float64."""
    double = model.in_double()
    with torch.no_grad():
        z = double.standardise(rows_of(model, count, seed))
        context = None
        if model.config.context_features:
            context = torch.randn(count, model.config.context_features, dtype=torch.float64)
        return double.conditionals(z, context).flatten()


class Formula(EnergyNetwork):
    """An energy network that is a function of x alone."""

    def __init__(self, formula: Callable[[Tensor], Tensor]) -> None:
        super().__init__(1, 1, hidden=1, blocks=0)
        self.formula = formula

    def forward(self, embedded: Tensor, projected: Tensor) -> Tensor:
        return self.formula(embedded[..., 0])


def given(
    formula: Callable[[Tensor], Tensor],
    form: EnergyForm = "literal",
    proposal: Proposal | None = None,
    count: int = 1,
) -> Conditionals:
    """Conditionals with f(x) given, and a standard normal proposal if none is."""
    if proposal is None:
        one = torch.ones(count, 1, dtype=torch.float64)
        proposal = GaussianMixture(0 * one, 0 * one, one)
    zeros = torch.zeros(count, 1, dtype=torch.float64)
    return Conditionals(proposal, zeros, zeros[:, :0], Formula(formula).double(), form)


def uniform(low: float, high: float, count: int = 1) -> FixedUniform:
    """The same bounds for each conditional."""
    one = torch.ones(count, dtype=torch.float64)
    return FixedUniform(low * one, high * one)
