"""Fourier features: a value with sines and cosines of its multiples, as input of a network.

A small network learns high frequencies of a scalar input slowly, and Fourier features provide them.
The frequencies are chosen from the data for each column. The highest one decides the finest
structure that a conditional can have.
"""

import math

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

LOWEST_FREQUENCY = math.pi / 4  # one period over eight standard deviations
HIGHEST_FREQUENCY = 2.0**14
HISTOGRAM_BINS = 2**17
# Under "no structure" N·|φ̂(ω)|² is exponential with mean one; among 2^16 frequencies a value above
# 40 has probability 3e-13.
SIGNIFICANT_POWER = 40.0
# Networks clamp values at this many standard deviations: there is nothing to learn beyond, and an input
# of 1e300 would overflow inside. The proposal reads the value itself.
REACH = 1e4


def fourier_features(
    x: Float[Tensor, "*B"], frequencies: Float[Tensor, "*#B F"]
) -> Float[Tensor, "*B E"]:
    """Return a value with sin and cos of its multiples: [x, a sin ωx, a cos ωx].

    The amplitude a falls like 1/√ω above ω = π, so that a network starts smooth and pays for
    roughness: on the spirals that gave a better fit, and energies that need fewer nodes.

    Parameters
    ----------
    x
        values in standard deviations of their column.
    frequencies
        F frequencies ω for each value, in radians per unit of x.
    """
    x = x[..., None]
    phase = x * frequencies
    amplitude = (frequencies / math.pi).clamp_min(1.0).rsqrt()
    return torch.cat((x, amplitude * phase.sin(), amplitude * phase.cos()), dim=-1)


class FourierFeatures(nn.Module):
    """Embeds each column with Fourier features of its own frequencies, which are saved with the model.

    Parameters
    ----------
    frequencies
        F frequencies ω of each column, in radians per unit of z; F may be zero.
    """

    frequencies: Tensor

    def __init__(self, frequencies: Float[Tensor, "D F"]) -> None:
        super().__init__()
        self.register_buffer("frequencies", frequencies)

    @property
    def width(self) -> int:
        """E, the number of features per value."""
        return 1 + 2 * self.frequencies.shape[1]

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D E"]:
        """Embed each feature with its own frequencies.

        Parameters
        ----------
        x
            rows in standard deviations of their columns, clamped to ±`REACH`.
        """
        return fourier_features(x.clamp(-REACH, REACH), self.frequencies)


def supported_frequency(rows: int) -> float:
    """Return the highest frequency that so many rows support: √N waves are about what N points resolve.

    Parameters
    ----------
    rows
        N, the number of training rows.
    """
    return math.pi * min(max(math.sqrt(rows) / 8, 2.0), 64.0)


def default_frequencies(count: int) -> NDArray[np.float64]:
    """Return F log-spaced frequencies [F] for a column of which nothing is known.

    Parameters
    ----------
    count
        F, the number of frequencies.
    """
    return np.geomspace(LOWEST_FREQUENCY, supported_frequency(0), count)


def choose_frequencies(z: NDArray[np.floating], count: int) -> NDArray[np.float64]:
    """Choose F log-spaced frequencies for each column of standardised data.

    The top of the ladder is the larger of two: what N rows can support (√N waves are about what N
    points resolve), and the strongest line in the column's spectrum beyond that, which is where a
    comb of rounded or quantised values shows.

    Parameters
    ----------
    z
        standardised training rows [N, D].
    count
        F, the number of frequencies per column.

    Returns
    -------
    array [D, F]
        the frequencies of each column, rising.
    """
    rows, features = z.shape
    supported = supported_frequency(rows)
    ladders = np.empty((features, count))
    for d in range(features):
        top = max(supported, strongest_line(np.asarray(z[:, d], dtype=np.float64), supported))
        ladders[d] = np.geomspace(LOWEST_FREQUENCY, top, count)
    return ladders


def strongest_line(z: NDArray[np.float64], above: float) -> float:
    """Return the frequency where the empirical characteristic function is largest, zero for none.

    Zero means that nothing exceeds sampling noise. A histogram's FFT gives the spectrum at all
    frequencies at once; the peak is then refined on the data, because a comb of a thousand teeth
    stays in step with a wave only if their frequencies agree to a fraction of one over the range.

    Parameters
    ----------
    z
        standardised values of one column.
    above
        frequencies up to this one do not count.
    """
    low, high = np.quantile(z, [0.001, 0.999])
    z = z[(z >= low) & (z <= high)]
    if high <= low:
        return 0.0
    counts, _ = np.histogram(z, bins=HISTOGRAM_BINS, range=(low, high))
    power = np.abs(np.fft.rfft(counts)) ** 2 / len(z)
    spacing = 2 * math.pi / (high - low)
    omega = spacing * np.arange(len(power))
    # The edges of the window leak like 1/ω, so a line must also exceed its neighbourhood.
    beyond = (omega > above) & (omega <= min(HIGHEST_FREQUENCY, omega[-1] / 4))
    if not beyond.any():
        return 0.0
    candidates = np.where(beyond, power, 0.0)
    # Values without noise have harmonics as strong as the fundamental: the lowest of the strong.
    strong = int((candidates >= candidates.max() / 2).argmax())
    peak = strong + int(candidates[strong : strong + 8].argmax())
    neighbourhood = np.median(power[max(peak - 64, 0) : peak + 65])
    if candidates[peak] < SIGNIFICANT_POWER or candidates[peak] < 16 * neighbourhood:
        return 0.0
    sample = z[:20_000]
    around = omega[peak] + spacing * np.linspace(-1, 1, 65)
    waves = np.abs(np.exp(1j * np.outer(around, sample)).mean(axis=1))
    # A comb finer than the histogram's bins shows there at a wrong frequency, but not in the data.
    if waves.max() < 0.5 * math.sqrt(candidates[peak] / len(z)):
        return 0.0
    return float(around[waves.argmax()])
