"""The paper's score: log p̂, with Ẑ as the mean weight of S samples of the proposal.

Samples are processed in chunks, so memory does not grow with S. The
logarithm of an unbiased Ẑ is biased: on average log Ẑ is too low by half the relative variance of
Ẑ, and the score too high by as much. `bias` estimates that from the same weights.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from aem.base.progress import Report, counting, silent
from aem.base.threads import spread
from aem.conditionals.batch import Conditionals
from aem.conditionals.normalizer import nodes_within
from aem.errors import AemError
from aem.model.aem import AEM

PUBLISHED_SAMPLES = 20_000  # S behind the paper's test scores
MEMORY = 2**26  # bytes at once: enough to keep a processor busy, few enough to stay near its cache


@dataclass(frozen=True)
class Estimated:
    """Estimates of log Z of N conditionals.

    Parameters
    ----------
    log_z
        log Ẑ, the log of the mean weight of the nodes.
    bias
        how much too low this is on average, for independent nodes.
    """

    log_z: Float[Tensor, " N"]
    bias: Float[Tensor, " N"]


@dataclass(frozen=True)
class ImportanceScores:
    """Log densities of B rows by conditional, estimated, in the units of the data.

    Parameters
    ----------
    log_prob
        estimates of log p(x_d | x_<d).
    log_proposal
        the proposal's log q(x_d | x_<d).
    log_z
        estimates of log Z, relative to the proposal.
    bias
        approximately how much too high log_prob is on average.
    """

    log_prob: Float[Tensor, "B D"]
    log_proposal: Float[Tensor, "B D"]
    log_z: Float[Tensor, "B D"]
    bias: Float[Tensor, "B D"]


def random_uniforms(
    conditionals: int,
    nodes: range,
    samples: int,
    *,
    stratified: bool,
    generator: torch.Generator,
    dtype: torch.dtype = torch.float64,
) -> Float[Tensor, "N S"]:
    """Return the uniforms of some of S nodes, independent or one in each of S strata of [0, 1).

    Parameters
    ----------
    conditionals
        N, how many conditionals there are.
    nodes
        the nodes wanted, a range out of all S.
    samples
        S, how many nodes there are in all.
    stratified
        whether node s lies in the s-th stratum.
    generator
        generator of the random numbers; its device is theirs.
    dtype
        floating-point type of the uniforms.
    """
    shape, device = (conditionals, len(nodes)), generator.device
    u = torch.rand(shape, dtype=dtype, device=device, generator=generator)
    if stratified:
        strata = torch.arange(nodes.start, nodes.stop, dtype=dtype, device=device)
        u = (strata + u) / samples
    return u.clamp(max=1 - torch.finfo(dtype).eps / 2)  # rounding can reach one


def ranges(total: int, step: int) -> Iterator[range]:
    """Divide [0, total) into ranges.

    Parameters
    ----------
    total
        where the last piece ends.
    step
        length of a piece, at most.
    """
    for start in range(0, total, step):
        yield range(start, min(start + step, total))


@torch.no_grad()
def estimate_log_z(
    conditionals: Conditionals,
    samples: int,
    *,
    stratified: bool,
    generator: torch.Generator,
    memory: int = MEMORY,
) -> Estimated:
    """Estimate log Z of a flat batch with S nodes each, summed up in float64.

    Parameters
    ----------
    conditionals
        N conditionals with one batch axis.
    samples
        S, draws of the proposal per conditional.
    stratified
        whether they are drawn one from each of S strata, or independently.
    generator
        generator of the random numbers.
    memory
        bytes that may be held at a time.
    """
    like = conditionals.proposal.batch
    n = len(like)
    first = like.new_full((n,), -torch.inf, dtype=torch.float64)
    second = first.clone()
    step = max(nodes_within(memory, conditionals) // max(n, 1), 1)
    for nodes in ranges(samples, step):
        u = random_uniforms(
            n, nodes, samples, stratified=stratified, generator=generator, dtype=like.dtype
        )
        log_w = conditionals.log_weight(conditionals.proposal.transport(u)).double()
        first = torch.logaddexp(first, log_w.logsumexp(-1))
        second = torch.logaddexp(second, (2 * log_w).logsumexp(-1))
    # Var(Ẑ) / Z² is about (Σw² / (Σw)² − 1/S); half of it is what the logarithm loses.
    relative_variance = (second - 2 * first).exp() - 1 / samples
    return Estimated(first - math.log(samples), 0.5 * relative_variance.clamp_min(0))


def rows_within(memory: int, model: AEM, samples: int) -> int:
    """Return how many rows fit into memory together, given the nodes per conditional.

    Parameters
    ----------
    memory
        bytes that may be held at a time.
    model
        the model that the rows pass through.
    samples
        S, nodes per conditional.
    """
    per_node = 8 * (4 * model.config.energy_hidden + 8 * model.config.components)
    return max(memory // (per_node * model.config.features * min(samples, 64)), 1)


def by_conditionals(
    score: Callable[[Tensor, Conditionals, int], tuple[Tensor, ...]],
    model: AEM,
    x: Float[Tensor, "B D"],
    together: int,
    count: Callable[[int], None],
) -> list[tuple[Tensor, ...]]:
    """Apply a function to blocks of rows and their conditionals.

    Parameters
    ----------
    score
        a function of standardised rows, their flat conditionals and the number of the first row.
    model
        the model that gives the conditionals.
    x
        rows in the units of the data, on the model's device.
    together
        how many rows are treated together.
    count
        called with the number of rows of each finished block.
    """
    z = model.standardise(x)

    def some(block: range) -> tuple[Tensor, ...]:
        rows = z[block.start : block.stop]
        return score(rows, model.conditionals(rows).flatten(), block.start)

    parts = []
    for part in spread(some, ranges(len(z), together), device=z.device.type):
        parts.append(part)
        count(len(part[0]))
    return parts


@torch.no_grad()
def importance_scores(
    model: AEM,
    x: Float[Tensor, "B D"],
    *,
    samples: int = PUBLISHED_SAMPLES,
    stratified: bool = False,
    seed: int = 0,
    memory: int = MEMORY,
    report: Report = silent,
) -> ImportanceScores:
    """Estimate log densities of rows as the paper does, independently between rows.

    Parameters
    ----------
    model
        the model, whose type the arithmetic of its networks has.
    x
        rows in the units of the data, on the model's device.
    samples
        S, draws of the proposal per conditional; the paper's test scores took 20,000.
    stratified
        whether they are drawn one from each of S strata, or independently as in the paper.
    seed
        seed of the draws.
    memory
        bytes that may be held at a time; together with the seed it decides the draws.
    report
        called as `report(what, done, total)` while the work goes on.
    """
    if samples < 1:
        raise AemError(f"importance sampling needs at least one sample, not {samples}")
    log_slope = -model.standardisation.scale.double().log()

    def score(z: Tensor, flat: Conditionals, first: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        generator = torch.Generator(z.device).manual_seed((seed * 1_000_003 + first) % 2**63)
        log_q = flat.proposal.log_prob_of(z.flatten()).double().reshape(z.shape) + log_slope
        log_w = flat.log_weight(z.reshape(-1, 1)).double().reshape(z.shape)
        estimated = estimate_log_z(
            flat, samples, stratified=stratified, generator=generator, memory=memory
        )
        log_z, bias = (t.reshape(z.shape) for t in (estimated.log_z, estimated.bias))
        return log_q + log_w - log_z, log_q, log_z, bias

    count = counting(report, "importance sampling", len(x))
    together = rows_within(memory, model, samples)
    parts = by_conditionals(score, model, x, together, count)
    if not parts:
        return ImportanceScores(*(x.double() for _ in range(4)))
    return ImportanceScores(*(torch.cat(column) for column in zip(*parts, strict=True)))
