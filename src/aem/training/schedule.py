"""Learning rate and averaging as functions of the step, so that checkpoints need not hold them."""

import math


def cosine(step: int, steps: int, peak: float, rise: int = 0) -> float:
    """Return the learning rate of a step: a linear rise to the peak, then half a cosine to zero."""
    risen = min((step + 1) / rise, 1.0) if rise else 1.0
    return 0.5 * peak * risen * (1 + math.cos(math.pi * min(step / steps, 1.0)))


def averaging_decay(step: int, decay: float) -> float:
    """Return the decay of the weight average, which is smaller in early steps, to forget the start."""
    return min(decay, (1 + step) / (10 + step))
