"""Learning rate and averaging as functions of the step alone, so that nothing has to be restored."""

import math


def cosine(step: int, steps: int, peak: float, rise: int = 0) -> float:
    """Learning rate of a step: from the peak to zero along half a cosine, rising to it at first."""
    risen = min((step + 1) / rise, 1.0) if rise else 1.0
    return 0.5 * peak * risen * (1 + math.cos(math.pi * min(step / steps, 1.0)))


def averaging_decay(step: int, decay: float) -> float:
    """Decay of the weight average: early on the average forgets faster, as it averages beginnings."""
    return min(decay, (1 + step) / (10 + step))
