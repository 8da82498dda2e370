"""The arithmetic of a training step, and the highest rate of the device.

Matrix products of our step, forward, in multiply-adds (E inputs per scalar, O = 3K + C outputs per
conditional, L and M residual blocks, G units of the energy network):

    ARNN   B · (D·E·H + 2L·H² + H·D·O)
    γ      B · D · C·G
    ENN    B · D · S · (E·G + 2M·G² + G)

A multiply-add is two operations. In the backward pass every product has two of its size, one for
the weights and one for the inputs, except the first layer of either network, whose inputs need no
gradient. Masked weights are counted, as a dense product computes them too. Elementwise operations
are not counted.
"""

import time

import torch

from aem.config import ModelConfig

CEILING_SIZE = 8192
CEILING_SECONDS = 1.0


def step_flops(config: ModelConfig, batch: int, nodes: int) -> int:
    """Return the floating-point operations of the matrix products in one training step."""
    d, h, g, c = config.features, config.hidden, config.energy_hidden, config.gamma
    e = 1 + 2 * config.frequencies
    outputs = 3 * config.components + c
    evaluated = batch * d * nodes
    first = batch * d * e * h + evaluated * e * g
    others = batch * (2 * config.blocks * h * h + h * d * outputs) + batch * d * c * g
    others += evaluated * (2 * config.energy_blocks * g * g + g)
    return 2 * (2 * first + 3 * others)


def product_ceiling(device: torch.device) -> float:
    """Measure the operations per second of a large bf16 matrix product, the best of many."""
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
