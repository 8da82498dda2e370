"""A mixture of models that factorise the same table in different column orders.

One order is one way to write p(x) as a product; each has columns it must explain with little before
them. The members' densities are averaged, not their logarithms: (1/M) Σ p_m(x) is again a density,
and never more than log M below the best member at any row.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from aem.base.files import (
    FORMAT,
    FORMAT_VERSION,
    blaming_file,
    read_columns,
    read_tensors,
    write_tensors,
)
from aem.base.settings import to_mapping
from aem.data.splits import Symmetry
from aem.errors import AemError
from aem.model.aem import AEM
from aem.model.files import read_config, read_lenses
from aem.model.transforms.normal_scores import Lens, log_slopes, through
from aem.nn.rowwise import linear


@dataclass(frozen=True)
class Member:
    """A model and its order: its d-th column is column `order[d]` of the table.

    With a symmetry, a matrix of whole numbers and determinant ±1, it reads the row mapped by that;
    columns that have a lens it sees through it.
    """

    model: AEM
    order: tuple[int, ...]
    symmetry: Symmetry | None = None
    lenses: tuple[Lens, ...] = ()

    def __post_init__(self) -> None:
        if sorted(self.order) != list(range(self.model.config.features)):
            raise AemError(
                f"the order {self.order} does not name each of the model's "
                f"{self.model.config.features} columns once"
            )
        if self.symmetry is not None and self.symmetry.shape != 2 * (len(self.order),):
            raise AemError(
                "a symmetry must have a row and a column for each of the model's columns"
            )
        if self.symmetry is not None and abs(round(np.linalg.det(self.symmetry))) != 1:
            raise AemError("a symmetry must keep volumes: its determinant must be 1 or -1")

    def arrange(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """Rows of the table as the model reads them."""
        x = self._ordered(x)
        if not self.lenses:
            return x
        return torch.from_numpy(through(self.lenses, self.model.columns, _doubles(x))).to(x)

    def log_volume(self, x: Float[Tensor, "B D"]) -> Float[Tensor, " B"]:
        """What a row's log density is more than the model's of what it reads."""
        slopes = log_slopes(self.lenses, self.model.columns, _doubles(self._ordered(x)))
        return torch.from_numpy(slopes).to(x)

    def _ordered(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        if self.symmetry is not None:
            x = linear(x, torch.from_numpy(self.symmetry).to(x))
        return x[..., list(self.order)]

    def restore(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """Rows of the model as the table has them."""
        for lens in self.lenses:
            d = self.model.columns.index(lens.column)
            x = x.clone()
            x[..., d] = torch.from_numpy(lens.inverse(_doubles(x[..., d]))).to(x)
        inverse = sorted(range(len(self.order)), key=self.order.__getitem__)
        x = x[..., inverse]
        if self.symmetry is not None:
            x = linear(x, torch.from_numpy(np.linalg.inv(self.symmetry).round()).to(x))
        return x


def _doubles(x: Tensor) -> NDArray[np.float64]:
    return x.detach().double().cpu().numpy()


def column_orders(features: int, members: int, seed: int) -> list[tuple[int, ...]]:
    """The order of the data first, then random ones; each is a function of (seed, place) alone."""
    orders = [tuple(range(features))]
    for place in range(1, members):
        generator = torch.Generator().manual_seed(seed * 1_000_003 + place)
        orders.append(tuple(torch.randperm(features, generator=generator).tolist()))
    return orders[:members]


def mixture_log_prob(log_prob: Float[Tensor, "M ..."]) -> Float[Tensor, "..."]:
    """log of the mean density of M members."""
    return log_prob.logsumexp(0) - math.log(len(log_prob))


def mixture_error(
    log_prob: Float[Tensor, "M ..."], error: Float[Tensor, "M ..."]
) -> Float[Tensor, "..."]:
    """What errors of the members' log densities do to that of the mixture.

    To first order each counts by its member's share of the density. Where no member has any, the
    shares are not numbers, and the largest error stands for all.
    """
    shares = log_prob.softmax(0)
    weighted = (shares * error).nan_to_num(nan=math.inf).sum(0)
    return torch.where(log_prob.isneginf().all(0), error.amax(0), weighted)


class Ensemble:
    """Members of equal weight over the same columns."""

    def __init__(self, members: Sequence[Member], columns: Sequence[str]) -> None:
        if not members:
            raise AemError("an ensemble needs at least one member")
        for member in members:
            if tuple(columns[i] for i in member.order) != member.model.columns:
                raise AemError("the members of an ensemble are not models of the same columns")
        self.members = tuple(members)
        self.columns = tuple(columns)

    def log_prob_and_error(
        self, x: Float[Tensor, "*B D"], tolerance: float | None = None
    ) -> tuple[Float[Tensor, "*B"], Float[Tensor, "*B"]]:
        """Log density and its estimated error, in nats, by quadrature."""
        scores = [m.model().log_prob_and_error(m.arrange(x), tolerance) for m in self.members]
        log_prob, error = (torch.stack(part) for part in zip(*scores, strict=True))
        log_prob = log_prob + torch.stack([m.log_volume(x) for m in self.members]).to(log_prob)
        return mixture_log_prob(log_prob), mixture_error(log_prob, error)

    def log_prob(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B"]:
        """Log density in the units of the data."""
        return self.log_prob_and_error(x)[0]

    def sample(self, count: int) -> Float[Tensor, "S D"]:
        """Draw rows exactly, each from a member chosen at random."""
        chosen = torch.randint(len(self.members), (count,))
        rows = torch.empty(count, len(self.columns))
        for place, member in enumerate(self.members):
            here = chosen == place
            drawn = member.model().sample((int(here.sum()),))
            rows[here] = member.restore(drawn).float().cpu()
        return rows


def save_ensemble(ensemble: Ensemble, path: str | Path, **about: Any) -> None:
    """All members in one safe file."""
    tensors = {
        f"{place}.{name}": tensor
        for place, member in enumerate(ensemble.members)
        for name, tensor in member.model.state_dict().items()
    }
    metadata = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "kind": "ensemble",
        "columns": list(ensemble.columns),
        "members": [
            {
                "order": list(m.order),
                "symmetry": None if m.symmetry is None else m.symmetry.tolist(),
                "lenses": [asdict(lens) for lens in m.lenses],
                "config": to_mapping(m.model.config),
            }
            for m in ensemble.members
        ],
        "about": about,
    }
    write_tensors(Path(path), tensors, metadata)


def load_ensemble(path: str | Path, device: str | torch.device = "cpu") -> Ensemble:
    """Load an ensemble in evaluation mode."""
    path = Path(path)
    tensors, metadata = read_tensors(path, "ensemble")
    with blaming_file(path, "ensemble"):
        columns = read_columns(metadata["columns"])
        members = []
        for place, entry in enumerate(metadata["members"]):
            start = f"{place}."
            state = {k.removeprefix(start): v for k, v in tensors.items() if k.startswith(start)}
            members.append(_read_member(entry, state, columns, device))
        return Ensemble(members, columns)


def _read_member(
    entry: dict[str, Any],
    state: dict[str, Tensor],
    columns: Sequence[str],
    device: str | torch.device,
) -> Member:
    order = tuple(entry["order"])
    model = AEM(read_config(entry["config"]), columns=[columns[i] for i in order])
    model.to(state["shift"].dtype).load_state_dict(state)
    symmetry = entry.get("symmetry")
    return Member(
        model.to(device).eval(),
        order,
        None if symmetry is None else np.array(symmetry),
        read_lenses(entry.get("lenses", []), columns),
    )
