"""Learning rate and averaging as functions of the step alone, so that nothing has to be restored."""

import math


def cosine(step: int, steps: int, peak: float) -> float:
    """Learning rate of a step: from the peak to zero along half a cosine."""
    return 0.5 * peak * (1 + math.cos(math.pi * min(step / steps, 1.0)))


def averaging_decay(step: int, decay: float) -> float:
    """Decay of the weight average: early on the average forgets faster, as it averages beginnings."""
    return min(decay, (1 + step) / (10 + step))
