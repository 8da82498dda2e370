"""How much arithmetic a training step is, and how fast the device multiplies at best.

Matrix products of our step, forward, in multiply-adds (E numbers stand for a scalar, O = 3K + C
outputs a conditional, L and M residual blocks, G units of the energy network):

    ARNN   B · (D·E·H + 2L·H² + H·D·O)
    γ      B · D · C·G
    ENN    B · D · S · (E·G + 2M·G² + G)

A multiply-add is two operations. Backward every product has two of its size, one for the weights
and one for the inputs, except the first layer of either network, whose inputs need no gradient.
Masked weights count as if they were not masked: that is what a dense product computes. Elementwise
work counts as nothing.
"""

import time

import torch

from aem.config import ModelConfig

CEILING_SIZE = 8192
CEILING_SECONDS = 1.0


def step_flops(config: ModelConfig, batch: int, nodes: int) -> int:
    """Floating-point operations of the matrix products in one training step."""
    d, h, g, c = config.features, config.hidden, config.energy_hidden, config.gamma
    e = 1 + 2 * config.frequencies
    outputs = 3 * config.components + c
    evaluated = batch * d * nodes
    first = batch * d * e * h + evaluated * e * g
    others = batch * (2 * config.blocks * h * h + h * d * outputs) + batch * d * c * g
    others += evaluated * (2 * config.energy_blocks * g * g + g)
    return 2 * (2 * first + 3 * others)


def product_ceiling(device: torch.device) -> float:
    """Operations a second of a large bf16 matrix product, measured: the best of many."""
    a, b = (
        torch.randn(CEILING_SIZE, CEILING_SIZE, device=device, dtype=torch.bfloat16)
        for _ in range(2)
    )
    best, began = float("inf"), time.perf_counter()
    while time.perf_counter() - began < CEILING_SECONDS:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(5):
            a @ b
        end.record()
        torch.cuda.synchronize(device)
        best = min(best, start.elapsed_time(end) / 5e3)
    return 2 * CEILING_SIZE**3 / best
