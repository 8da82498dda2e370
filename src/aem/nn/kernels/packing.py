"""All parameters of a model in one block of memory, and their gradients in another.

The optimiser updates one long vector instead of many short ones, and kernels for several layers find
their parameters side by side. With `half` there is a bfloat16 copy for products in mixed precision,
which has to be refreshed after a change of the weights.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

ALIGNED = 16  # numbers: no parameter starts between two of a kernel's wide loads


@dataclass(frozen=True)
class PackedPlace:
    """The position of a parameter in packed memory.

    Parameters
    ----------
    memory
        the memory.
    start
        its first number there.
    stop
        the number after its last.
    """

    memory: "Packed"
    start: int
    stop: int


class Packed:
    """The packed memory of groups of parameters, which become views of it.

    Parameters
    ----------
    groups
        parameters that lie next to each other, group after group.
    half
        whether a bfloat16 copy lies beside them.
    """

    def __init__(self, groups: Sequence[Iterable[nn.Parameter]], *, half: bool = False) -> None:
        members = [list(group) for group in groups]
        self.parameters = [p for group in members for p in group]
        self.slices: list[slice] = []  # of the memory, a group each
        self.groups: list[slice] = []  # of the list of parameters
        places: list[tuple[int, int]] = []
        end = 0
        for group in members:
            first = end
            self.groups.append(slice(len(places), len(places) + len(group)))
            for p in group:
                places.append((end, end + p.numel()))
                end += -(-p.numel() // ALIGNED) * ALIGNED
            self.slices.append(slice(first, end))
        like = self.parameters[0]
        self.weights = torch.zeros(end, dtype=like.dtype, device=like.device)
        self.gradients = torch.zeros_like(self.weights)
        self.given: set[int] = set()  # starts of gradients that a kernel was told to write
        self.half = self.weights.to(torch.bfloat16) if half else None
        for p, (start, stop) in zip(self.parameters, places, strict=True):
            here = self.weights[start:stop].view_as(p)
            p.data = here.copy_(p.data)
            p.place = PackedPlace(self, start, stop)  # type: ignore[attr-defined]
        self.refresh()

    def refresh(self) -> None:
        """Update the bfloat16 copy after a change of the weights."""
        if self.half is not None:
            self.half.copy_(self.weights)

    def release(self) -> None:
        """Give each parameter memory of its own again."""
        for p in self.parameters:
            p.data = p.data.clone()
            del p.place  # type: ignore[attr-defined]

    def gradient_of(self, parameter: nn.Parameter) -> Tensor:
        """Return the memory of a parameter's gradient.

        Parameters
        ----------
        parameter
            one of the packed.
        """
        place: PackedPlace = parameter.place  # type: ignore[attr-defined]
        return self.gradients[place.start : place.stop].view_as(parameter)

    def room(self, start: int, stop: int) -> Tensor:
        """Return memory to compute a gradient in: its own, unless another use of the weights has it.

        Parameters
        ----------
        start
            the parameter's first number in the packed memory.
        stop
            the number after its last.
        """
        if start in self.given:
            return torch.empty_like(self.gradients[start:stop])
        self.given.add(start)
        return self.gradients[start:stop]

    def gather(self, gradients: Sequence[Tensor | None]) -> None:
        """Copy gradients into packed memory, unless they were computed there.

        Parameters
        ----------
        gradients
            one per parameter; None counts as zero.
        """
        self.given.clear()
        homes = [self.gradient_of(p) for p in self.parameters]
        pairs = list(zip(homes, gradients, strict=True))
        moved = [(h, g) for h, g in pairs if g is not None and g.data_ptr() != h.data_ptr()]
        if moved:
            torch._foreach_copy_([h for h, _ in moved], [g for _, g in moved])
        absent = [h for h, g in pairs if g is None]
        if absent:
            torch._foreach_zero_(absent)


@dataclass(frozen=True)
class Memory:
    """The packed parameters of several layers, as kernels read them.

    Parameters
    ----------
    weights
        their values.
    half
        their values in the type of products.
    gradients
        room for their gradients.
    """

    weights: Tensor
    half: Tensor
    gradients: Tensor


def memory_of(parameters: Sequence[Tensor], kind: torch.dtype) -> Memory:
    """Return the memory of neighbouring parameters, or a copy where they are not packed.

    Parameters
    ----------
    parameters
        parameters in the order in which they lie.
    kind
        the type that products read.
    """
    places: list[PackedPlace] = [p.place for p in parameters if hasattr(p, "place")]
    if len(places) == len(parameters):
        packed = places[0].memory
        joined = all(a.stop == b.start for a, b in pairwise(places))
        if joined and packed.half is not None and packed.half.dtype == kind:
            start, stop = places[0].start, places[-1].stop
            here = slice(start, stop)
            return Memory(packed.weights[here], packed.half[here], packed.room(start, stop))
    with torch.no_grad():
        weights = torch.cat([p.detach().flatten() for p in parameters])
    return Memory(weights, weights.to(kind), torch.empty_like(weights))


def split_like(flat: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
    """Return views of neighbours' memory, one per parameter.

    Parameters
    ----------
    flat
        the memory.
    parameters
        tensors of the sizes of the views, in their order.
    """
    parts = flat.split([p.numel() for p in parameters])
    return [part.view_as(p) for part, p in zip(parts, parameters, strict=True)]
