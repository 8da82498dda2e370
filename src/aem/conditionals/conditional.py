"""One-dimensional conditionals as objects: what else could stand in this column of this row?"""

from collections.abc import Sequence
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aem.conditionals.batch import Conditionals, representatives
from aem.conditionals.cdf import PanelCDF
from aem.conditionals.normalizer import Normalizer, Quadrature, normalizer, refuse_divergent
from aem.conditionals.quadrature import KRONROD, panel_nodes
from aem.conditionals.regions import highest_density_region
from aem.errors import AemError

Grid = Tensor | float | Sequence[float]  # values of a column, or levels of its quantiles
GRADED = 12  # halvings of the outermost panels for moments: x is unbounded there


class Conditional:
    """p(x_d | x_<d) of one column, for a batch `*B` of rows (none for a single row), in data units.

    `AEMDistribution.conditionals` makes these. A grid or levels of shape [G] are for all rows,
    [*B, G] for each its own; results are [*B, G], and [*B] of a single number. Normalisers are
    computed when a number first needs them, and kept.

    Parameters
    ----------
    conditionals
        the flat batch of N conditionals, standardised, in float64.
    value
        the value that each row has in the column, in the units of the data.
    shift
        where the column is centred for each row; differs between rows if columns are whitened.
    scale
        the unit of the standardised column, in the units of the data.
    groups
        a number per row; rows of one group share a conditional, which is integrated once.
    shape
        the batch shape `*B` of results; its product is N.
    column
        name of the column, for messages.
    settings
        how exactly normalisers are computed; here the tolerance is for this one column.

    Examples
    --------
    >>> import torch
    >>> from aem import AEM, ModelConfig
    >>> second = AEM(ModelConfig(features=2))().conditionals(torch.zeros(2))[1]
    >>> second.cdf(second.quantile(torch.tensor([0.05, 0.95])))
    tensor([0.0500, 0.9500], dtype=torch.float64)
    >>> second.density(torch.linspace(-4, 4, 100)).shape
    torch.Size([100])
    """

    def __init__(
        self,
        conditionals: Conditionals,
        *,
        value: Float[Tensor, " N"],
        shift: Float[Tensor, " N"],
        scale: Float[Tensor, ""],
        groups: Int[Tensor, " N"],
        shape: torch.Size,
        column: str,
        settings: Quadrature,
    ) -> None:
        self.column, self.shape, self.settings = column, shape, settings
        self._all, self._value, self._shift, self._scale = conditionals, value, shift, scale
        self._groups = groups  # rows of one group share a conditional

    @cached_property
    def _normalizer(self) -> Normalizer:
        distinct = self._all.select(representatives(self._groups))
        tolerance = self.settings.tolerance
        computed = normalizer(distinct, self.settings, tolerance=tolerance, keep_panels=True)
        refuse_divergent(computed.log_z[self._groups][:, None], (self.column,))
        return computed

    @cached_property
    def _cdf(self) -> PanelCDF:
        return PanelCDF.of(self._normalizer)

    def _spread(self, grid: Grid) -> Float[Tensor, "N G"]:
        """A grid for all rows, or each row's own, as float64 [N, G]."""
        points = torch.as_tensor(grid, dtype=torch.float64, device=self._value.device)
        if not points.ndim:
            points = points[None]
        try:
            return points.expand(*self.shape, -1).reshape(-1, points.shape[-1])
        except RuntimeError as error:
            raise AemError(
                f"a grid of shape {tuple(points.shape)} does not fit rows of shape "
                f"{tuple(self.shape)}: pass a number, [G] for all rows, or [*B, G]"
            ) from error

    def _standardised(self, grid: Grid) -> Float[Tensor, "N G"]:
        return (self._spread(grid) - self._shift[:, None]) / self._scale

    def _shaped(self, result: Float[Tensor, "N G"], grid: Grid) -> Float[Tensor, "*H"]:
        """A result in the shape that the grid asks for: a number has no axis of its own."""
        if (isinstance(grid, Tensor) and grid.ndim) or not isinstance(grid, Tensor | float | int):
            return result.reshape(*self.shape, result.shape[-1])
        return result.reshape(self.shape)

    @property
    def log_z(self) -> Float[Tensor, "*B"]:
        """log Z, the logarithm of the normaliser relative to the proposal."""
        return self._normalizer.log_z[self._groups].reshape(self.shape)

    @property
    def error(self) -> Float[Tensor, "*B"]:
        """The estimated error of log densities, in nats."""
        return self._normalizer.error[self._groups].reshape(self.shape)

    @torch.no_grad()
    def log_density(self, grid: Grid) -> Float[Tensor, "*H"]:
        """Return the log density at each point of a grid.

        Parameters
        ----------
        grid
            values of the column: a number, [G] for all rows, or [*B, G].
        """
        z = self._standardised(grid)
        log_z = self._normalizer.log_z[self._groups]
        log_p = self._all.log_unnormalized(z) - log_z[:, None] - self._scale.log()
        return self._shaped(log_p, grid)

    def density(self, grid: Grid) -> Float[Tensor, "*H"]:
        """Return the density at each point of a grid.

        Parameters
        ----------
        grid
            values of the column: a number, [G] for all rows, or [*B, G].
        """
        return self.log_density(grid).exp()

    @torch.no_grad()
    def log_proposal(self, grid: Grid) -> Float[Tensor, "*H"]:
        """Return the log density of the proposal at each point of a grid.

        Parameters
        ----------
        grid
            values of the column: a number, [G] for all rows, or [*B, G].
        """
        z = self._standardised(grid)
        return self._shaped(self._all.proposal.log_prob(z) - self._scale.log(), grid)

    @torch.no_grad()
    def cdf(self, grid: Grid) -> Float[Tensor, "*H"]:
        """Return the probability of lying below each point of a grid.

        Parameters
        ----------
        grid
            values of the column: a number, [G] for all rows, or [*B, G].
        """
        z = self._standardised(grid)
        t = self._cdf.coordinates.select(self._groups).coordinate(z)
        problem = self._groups.repeat_interleave(z.shape[1])
        below = self._cdf.at_coordinate(t.reshape(-1), problem)
        return self._shaped(below.reshape(z.shape), grid)

    @torch.no_grad()
    def quantile(self, levels: Grid) -> Float[Tensor, "*H"]:
        """Return the points with these probabilities below them.

        Parameters
        ----------
        levels
            probabilities in [0, 1]: a number, [G] for all rows, or [*B, G].
        """
        p = self._spread(levels)
        if not bool(((p >= 0) & (p <= 1)).all()):
            raise AemError("quantiles need levels between 0 and 1")
        problem = self._groups.repeat_interleave(p.shape[1])
        t = self._cdf.coordinate_at(p.reshape(-1), problem).reshape(p.shape)
        z = self._cdf.coordinates.select(self._groups).point(t)
        return self._shaped(self._shift[:, None] + self._scale * z, levels)

    @torch.no_grad()
    def sample(
        self,
        sample_shape: torch.Size | Sequence[int] = (),
        *,
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, "*H"]:
        """Draw values by inverting the CDF.

        Parameters
        ----------
        sample_shape
            how many of each row; the result has this shape, and then that of the rows.
        generator
            where random numbers come from; PyTorch's own stream without one.
        """
        count = torch.Size(sample_shape).numel()
        u = torch.rand(
            (*self.shape, count),
            dtype=torch.float64,
            device=self._value.device if generator is None else generator.device,
            generator=generator,
        )
        drawn = self.quantile(u).movedim(-1, 0)
        return drawn.reshape(*sample_shape, *self.shape)

    def pit(self) -> Float[Tensor, "*B"]:
        """Return F(x_d | x_<d) at the rows' own values, which is uniform if the model is right."""
        return self.cdf(self._value.reshape(*self.shape, 1))[..., 0]

    @cached_property
    def _moments(self) -> tuple[Float[Tensor, " M"], Float[Tensor, " M"]]:
        """Mean and variance of the distinct conditionals, standardised."""
        panels = self._cdf.panels
        problem, start, end = panels.problem, panels.start, panels.end
        first, last = self._cdf.first, self._cdf.first + self._cdf.count - 1
        inner = torch.ones_like(start, dtype=torch.bool)
        inner[first], inner[last] = False, False
        parts = [(problem[inner], start[inner], end[inner])]
        fractions = torch.cat((torch.zeros(1), 0.5 ** torch.arange(GRADED, -1, -1.0))).to(start)
        for edge, away in ((first, False), (last, True)):
            a, b = start[edge, None], end[edge, None]
            if len(panels) == len(first) and away:
                break  # a single panel is both first and last
            cuts = b - (b - a) * fractions.flip(0) if away else a + (b - a) * fractions
            owner = problem[edge].repeat_interleave(len(fractions) - 1)
            parts.append((owner, cuts[:, :-1].reshape(-1), cuts[:, 1:].reshape(-1)))
        problem, start, end = (torch.cat(column) for column in zip(*parts, strict=True))
        x, mass = self._mass(problem, start, end)
        total = torch.zeros_like(self._cdf.total)

        def expectation(values: Tensor) -> Tensor:
            return torch.zeros_like(total).index_add_(0, problem, (mass * values).sum(-1))

        total = expectation(torch.ones_like(x))
        mean = expectation(x) / total
        variance = expectation((x - mean[problem, None]).square()) / total
        distinct = self._normalizer.coordinates.conditionals
        if distinct.form == "relative":
            # Between e^−32 and one, a weight leaves a proposal's moments finite, infinite or missing.
            own_mean, own_deviation = distinct.proposal.moments()
            mean = torch.where(own_mean.isfinite(), mean, own_mean)
            variance = torch.where(own_deviation.isfinite(), variance, own_deviation)
        return mean, variance

    def _mass(self, problem: Tensor, start: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
        """Nodes of panels, and the probability each stands for (up to a factor)."""
        chunk = max(self.settings.budget(self._all).chunk // len(KRONROD), 1)
        points, masses = [], []
        parts = zip(problem.split(chunk), start.split(chunk), end.split(chunk), strict=True)
        for p, a, b in parts:
            coordinates, t = self._cdf.coordinates.select(p), panel_nodes(a, b)
            x = coordinates.point(t)
            level = coordinates.log_weight(t, x) - self._normalizer.log_z[p, None]
            points.append(x)
            masses.append(
                level.exp() * coordinates.measure(t, x) * (b - a)[:, None] * KRONROD.to(a.device)
            )
        return torch.cat(points), torch.cat(masses)

    @torch.no_grad()
    def mean(self) -> Float[Tensor, "*B"]:
        """Return the expectation, NaN where a heavy-tailed proposal leaves none."""
        own = self._moments[0][self._groups]
        return (self._shift + self._scale * own).reshape(self.shape)

    @torch.no_grad()
    def variance(self) -> Float[Tensor, "*B"]:
        """Return the variance, infinite or NaN where a heavy-tailed proposal leaves none."""
        return (self._scale.square() * self._moments[1])[self._groups].reshape(self.shape)

    def std(self) -> Float[Tensor, "*B"]:
        """Return the standard deviation, the root of `variance`."""
        return self.variance().sqrt()

    @torch.no_grad()
    def highest_density_regions(self, mass: float) -> list[Float[Tensor, "I 2"]]:
        """Return for each row the smallest set of values with this probability.

        A conditional with several modes has several intervals.

        Parameters
        ----------
        mass
            the probability, between 0 and 1: 0.9 for a 90 % region.

        Returns
        -------
        list of tensor [I, 2]
            one tensor per row: its intervals [low, high] in rising order, in the units of the data.
        """
        if not 0 < mass < 1:
            raise AemError(f"the mass of a region must lie between 0 and 1, not {mass}")
        regions = [
            self._scale * highest_density_region(self._cdf, problem, mass)
            for problem in range(len(self._cdf.count))
        ]
        return [
            shift + regions[g] for shift, g in zip(self._shift, self._groups.tolist(), strict=True)
        ]
