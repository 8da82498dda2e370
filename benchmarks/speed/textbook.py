"""A plain implementation of the paper, with which the speed benchmark compares this library.

It is a straightforward autoregressive energy machine after Nash & Durkan (2019): float32, masked
layers that multiply their mask in every pass, contexts repeated for every node and concatenated to
x, iid importance samples, D full passes to draw a row, and 20,000 samples to score one. Nothing is
slowed down on purpose, and it shares no code with `aem`.

Shapes: B rows, D features, C context width, K mixture components, S importance samples, H units.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

RESAMPLED = 100  # proposals a drawn value is chosen from (section 3.3)
SCORED = 20_000  # importance samples behind a reported score (section 4.3)
# Rows times samples in one pass of the energy network when scoring: large enough to keep a
# processor busy, small enough for any memory.
CHUNK = 2**16


class MaskedLinear(nn.Linear):
    """A linear layer whose weight is multiplied by a fixed mask of zeros and ones."""

    mask: Tensor

    def __init__(self, mask: Tensor) -> None:
        super().__init__(mask.shape[1], mask.shape[0])
        self.register_buffer("mask", mask.float())

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] → [..., out]."""
        return F.linear(x, self.weight * self.mask, self.bias)


class ResidualBlock(nn.Module):
    """Pre-activations, two layers, dropout between them."""

    def __init__(self, first: nn.Linear, second: nn.Linear, dropout: float) -> None:
        super().__init__()
        self.first, self.second = first, second
        self.dropout = nn.Dropout(dropout)

    def forward(self, h: Tensor) -> Tensor:
        """[..., H] → [..., H]."""
        t = self.first(F.relu(h))
        step: Tensor = self.second(self.dropout(F.relu(t)))
        return h + step


def degrees(features: int, hidden: int) -> Tensor:
    """d_k = (k − 1) mod (D − 1) + 1 (appendix A); one feature depends on nothing."""
    if features == 1:
        return torch.zeros(hidden, dtype=torch.long)
    return torch.arange(hidden) % (features - 1) + 1


class ResMADE(nn.Module):
    """x [B, D] → [B, D, O]; output d depends on x_<d alone (appendix A)."""

    def __init__(
        self, features: int, outputs: int, *, hidden: int, blocks: int, dropout: float
    ) -> None:
        super().__init__()
        self.features = features
        inputs, units = torch.arange(1, features + 1), degrees(features, hidden)
        emitted = inputs.repeat_interleave(outputs)
        inner = units[:, None] >= units[None, :]
        self.initial = MaskedLinear(units[:, None] >= inputs[None, :])
        self.blocks = nn.Sequential(
            *(
                ResidualBlock(MaskedLinear(inner), MaskedLinear(inner), dropout)
                for _ in range(blocks)
            )
        )
        self.final = MaskedLinear(emitted[:, None] > units[None, :])

    def forward(self, x: Tensor) -> Tensor:
        """All D outputs in one pass."""
        h = self.blocks(self.initial(x))
        outputs: Tensor = self.final(F.relu(h))
        return outputs.view(len(x), self.features, -1)


class EnergyNetwork(nn.Module):
    """[x, γ] → −E(x; γ) ≤ 0: a residual network, shared by all dimensions (section 3.1)."""

    def __init__(self, context: int, *, hidden: int, blocks: int, dropout: float) -> None:
        super().__init__()
        self.initial = nn.Linear(1 + context, hidden)
        self.blocks = nn.Sequential(
            *(
                ResidualBlock(nn.Linear(hidden, hidden), nn.Linear(hidden, hidden), dropout)
                for _ in range(blocks)
            )
        )
        self.final = nn.Linear(hidden, 1)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        """x [..., S], γ [..., C] → [..., S]; the context is repeated for every x."""
        tiled = context[..., None, :].expand(*x.shape, context.shape[-1])
        h = self.blocks(self.initial(torch.cat((x[..., None], tiled), -1)))
        return -F.softplus(self.final(F.relu(h))[..., 0])


class Mixture:
    """A mixture of K Gaussians a conditional: q(x_d; φ_d)."""

    def __init__(self, phi: Tensor, min_scale: float) -> None:
        logits, self.locs, raw_scales = phi.chunk(3, -1)
        self.log_weights = logits.log_softmax(-1)
        self.scales = min_scale + F.softplus(raw_scales)

    def log_prob(self, x: Tensor) -> Tensor:
        """[..., S] → [..., S]."""
        z = (x[..., None] - self.locs[..., None, :]) / self.scales[..., None, :]
        log_normal = -0.5 * (z.square() + math.log(2 * math.pi)) - self.scales.log()[..., None, :]
        return (self.log_weights[..., None, :] + log_normal).logsumexp(-1)

    def sample(self, count: int) -> Tensor:
        """S iid draws of each: [..., S]."""
        weights = self.log_weights.exp().flatten(0, -2)
        component = torch.multinomial(weights, count, replacement=True)
        component = component.view(*self.locs.shape[:-1], count)
        locs, scales = self.locs.gather(-1, component), self.scales.gather(-1, component)
        return locs + scales * torch.randn_like(locs)


class TextbookAEM(nn.Module):
    """ARNN and ENN (figure 3), with the paper's estimate, sampler and score."""

    def __init__(
        self,
        features: int,
        *,
        hidden: int = 512,
        blocks: int = 4,
        context: int = 64,
        energy_hidden: int = 128,
        energy_blocks: int = 4,
        components: int = 20,
        min_scale: float = 1e-3,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.features, self.components, self.min_scale = features, components, min_scale
        self.arnn = ResMADE(
            features, 3 * components + context, hidden=hidden, blocks=blocks, dropout=dropout
        )
        self.energy = EnergyNetwork(
            context, hidden=energy_hidden, blocks=energy_blocks, dropout=dropout
        )

    def conditionals(self, x: Tensor) -> tuple[Mixture, Tensor]:
        """Proposals, and contexts γ [B, D, C], of rows [B, D]."""
        outputs = self.arnn(x)
        phi, gamma = outputs.tensor_split((3 * self.components,), -1)
        return Mixture(phi, self.min_scale), gamma

    def log_prob_at(self, x: Tensor, proposal: Mixture, gamma: Tensor, nodes: Tensor) -> Tensor:
        """log p̂ by conditional [B, D], with Ẑ from the given nodes [B, D, S] (section 3.2)."""
        with torch.no_grad():  # the proposal is a constant here (section 3.2)
            log_q = proposal.log_prob(nodes)
        negative_energy: Tensor = self.energy(torch.cat((x[..., None], nodes), -1), gamma)
        log_weights = negative_energy[..., 1:] - log_q
        log_z = log_weights.logsumexp(-1) - math.log(nodes.shape[-1])
        return negative_energy[..., 0] - log_z

    def forward(self, x: Tensor, samples: int = 20) -> tuple[Tensor, Tensor]:
        """(log p̂, log q) of rows [B, D], each [B]."""
        proposal, gamma = self.conditionals(x)
        with torch.no_grad():
            nodes = proposal.sample(samples)
        log_p = self.log_prob_at(x, proposal, gamma, nodes)
        log_q = proposal.log_prob(x[..., None])[..., 0]
        return log_p.sum(-1), log_q.sum(-1)

    @torch.no_grad()
    def score(self, x: Tensor, samples: int = SCORED) -> Tensor:
        """log p̂ of rows with many importance samples, a chunk of samples at a time: [B]."""
        parts = []
        for rows in x.split(max(CHUNK // (samples * self.features), 1)):
            proposal, gamma = self.conditionals(rows)
            log_total = rows.new_full(rows.shape, -torch.inf)
            step = max(CHUNK // rows.numel(), 1)
            for first in range(0, samples, step):
                nodes = proposal.sample(min(step, samples - first))
                log_weights = self.energy(nodes, gamma) - proposal.log_prob(nodes)
                log_total = torch.logaddexp(log_total, log_weights.logsumexp(-1))
            negative_energy = self.energy(rows[..., None], gamma)[..., 0]
            parts.append((negative_energy - log_total + math.log(samples)).sum(-1))
        return torch.cat(parts)

    @torch.no_grad()
    def sample(self, rows: int, block: int = 1024) -> Tensor:
        """Draw rows by resampling, feature by feature, with a full pass of the ARNN for each."""
        like = self.energy.final.weight
        parts = []
        for first in range(0, rows, block):
            x = like.new_zeros(min(block, rows - first), self.features)
            for d in range(self.features):
                outputs = self.arnn(x)[:, d]
                phi, gamma = outputs.tensor_split((3 * self.components,), -1)
                proposal = Mixture(phi, self.min_scale)
                nodes = proposal.sample(RESAMPLED)
                log_weights = self.energy(nodes, gamma) - proposal.log_prob(nodes)
                chosen = torch.multinomial(log_weights.softmax(-1), 1)
                x[:, d] = nodes.gather(-1, chosen)[:, 0]
            parts.append(x)
        return torch.cat(parts)


class TextbookTraining:
    """Adam with cosine annealing to zero; the gradient's norm is clipped, as ours is."""

    def __init__(
        self,
        model: TextbookAEM,
        *,
        steps: int,
        learning_rate: float = 5e-4,
        samples: int = 20,
        clip: float = 5.0,
    ) -> None:
        self.model, self.samples, self.clip = model, samples, clip
        self.optimiser = torch.optim.Adam(model.parameters(), lr=learning_rate)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimiser, steps)

    def __call__(self, batch: Tensor) -> Tensor:
        """One step of maximum likelihood on log p̂ + log q (section 3.2)."""
        log_p, log_q = self.model(batch, self.samples)
        loss: Tensor = -(log_p + log_q).mean()
        self.optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimiser.step()
        self.schedule.step()
        return loss.detach()
