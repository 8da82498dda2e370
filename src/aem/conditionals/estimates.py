"""Estimates of log p from a few random nodes per conditional, for training.

*importance* is the paper's estimator: Ẑ is the mean of w at S samples of the proposal.

*ranking* includes the data point among the nodes. Given S + 1 independent nodes, w(x) / Σ w is the
probability that x is the data point. Training this is a ranking problem with the optimum w ∝ p / q for
any S. As log p̂ − log q ≤ log(S + 1), the objective is bounded even while the proposal does not cover
the data. With stratified nodes the data point replaces the node in its own stratum. Then each set again
has one point per stratum, one of which is the data, and the same argument holds with less variance.
(With the data as an additional node it would not: the set would show which stratum has two points.)

Neither sends a gradient into the proposal: nodes and log q are constants (paper, section 3.2).

`log_prob_by_importance` is the importance-sampling estimate with all gradients, for users who need the
gradient of log p itself.
"""

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from aem.base.randomness import uniforms
from aem.conditionals.batch import DEPTH, Conditionals
from aem.conditionals.proposals.base import stratified_uniforms
from aem.nn.kernels import applied, fuses_ranking

Estimator = Literal["importance", "ranking"]
LOW = -3.0  # log Z of a conditional below which training lifts it


def log_prob_estimate(
    conditionals: Conditionals,
    x: Float[Tensor, "*B"],
    *,
    nodes: int,
    estimator: Estimator = "ranking",
    stratified: bool = True,
) -> tuple[Float[Tensor, "*B"], Float[Tensor, "*B"], Float[Tensor, "*B"]]:
    """Estimate the log density of data under each conditional, for training.

    Parameters
    ----------
    conditionals
        the conditionals of the rows.
    x
        the standardised value of each row in each column.
    nodes
        S, the number of random nodes of each conditional.
    estimator
        "importance" for the paper's, "ranking" for the one with x among the nodes.
    stratified
        whether nodes are drawn one from each of S strata, or independently.

    Returns
    -------
    log_p : tensor [*B]
        the estimate of log p; no gradient from it reaches the proposal.
    log_q : tensor [*B]
        log density of the proposal, differentiable.
    log_z : tensor [*B]
        the estimate of log Z, from all nodes there are.
    """
    proposal = conditionals.proposal
    if estimator == "ranking" and stratified:
        log_q, points, own = proposal.nodes_around(x, nodes)
    else:
        log_q = proposal.log_prob_of(x)
        with torch.no_grad():
            like = proposal.batch
            u = (
                stratified_uniforms(like, nodes)
                if stratified
                else uniforms((*like.shape, nodes), like)
            )
            points = torch.cat((x[..., None], proposal.transport(u)), dim=-1)
            own = torch.zeros_like(x, dtype=torch.long)
    if estimator == "ranking" and conditionals.form == "relative" and fuses_ranking(points):
        from aem.nn.kernels.ranking import FusedRanking

        f = conditionals.network(points).flatten(0, -2)
        rank, log_z = applied(FusedRanking, f, own.flatten(), DEPTH)
        return rank.view(x.shape) + log_q.detach(), log_q, log_z.view(x.shape)
    log_w = conditionals.log_weight(points)
    log_w_data = log_w.gather(-1, own[..., None])[..., 0]
    log_w_nodes = log_w if estimator == "ranking" else log_w[..., 1:]
    log_z = log_w_nodes.logsumexp(-1) - math.log(log_w_nodes.shape[-1])
    return log_w_data + log_q.detach() - log_z, log_q, log_z


def level_penalty(log_z: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
    """Return a penalty on log normalisers below `LOW`; above, there is none.

    A number added to all energies of a conditional changes no density, so nothing else keeps a
    relative energy from drifting until its normaliser is tiny: sums would cancel and draws be
    rejected.

    Parameters
    ----------
    log_z
        estimates of log normalisers of relative energies.
    """
    return (LOW - log_z).relu().square()


def log_prob_by_importance(
    conditionals: Conditionals, x: Float[Tensor, "*B"], *, nodes: int
) -> Float[Tensor, "*B"]:
    """Estimate the log density of data, differentiably in the data and in all parameters.

    The nodes are constants. What the proposal's parameters change of Ẑ is counted by the ratio of the
    proposal to itself, which is one and has a gradient.

    Parameters
    ----------
    conditionals
        the conditionals of the rows.
    x
        the standardised value of each row in each column.
    nodes
        S, the number of stratified nodes of each conditional.
    """
    constant = conditionals.proposal.changed(Tensor.detach)
    y = constant.transport(stratified_uniforms(constant.batch, nodes))
    log_q = constant.log_prob(y)
    level = conditionals.log_unnormalized(torch.cat((x[..., None], y), -1))
    log_z = (level[..., 1:] - log_q).logsumexp(-1) - math.log(nodes)
    return level[..., 0] - log_z


def log_z_estimate(conditionals: Conditionals, *, nodes: int) -> Float[Tensor, "*B"]:
    """Estimate log Z of each conditional with S stratified nodes.

    Every conditional has its own random nodes, so over many rows the errors average out; nodes that
    all rows share would leave an error common to them, and a model that seems better than it is.

    Parameters
    ----------
    conditionals
        what is normalised.
    nodes
        S, the number of nodes of each conditional.
    """
    proposal = conditionals.proposal
    y = proposal.transport(stratified_uniforms(proposal.batch, nodes))
    return conditionals.log_weight(y).logsumexp(-1) - math.log(nodes)
