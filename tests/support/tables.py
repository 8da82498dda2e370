"""Models of tables of every kind, small and untrained: random networks behind real transforms."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from aem import AEM, ModelConfig, TableModel
from aem.model.transforms.base import Chain
from aem.model.transforms.normal_scores import heavy_tailed
from aem.model.transforms.offset import Offset
from aem.model.transforms.symmetry import Symmetry
from aem.tables.discrete import dequantise, lattice, recognise
from aem.tables.ensemble import TableEnsemble
from aem.tables.fit.automatic import far_from_zero

Array = NDArray[np.float64]

NAMES = ("time", "size", "tail", "count", "level")
SMALL = ModelConfig(
    hidden=16, blocks=1, gamma=4, energy_hidden=16, energy_blocks=1, components=3, frequencies=2
)


def sizes(rows: int, seed: int) -> Array:
    """A table with a column of each kind: far from zero, heavy-tailed, whole, of few values, plain."""
    rng = np.random.default_rng(seed)
    size = rng.normal(size=rows)
    return np.stack(
        (
            1.6e9 + 3600 * rng.random(rows) + 200 * size,
            size + 0.2 * rng.normal(size=rows),
            np.exp(0.5 * size) * rng.standard_cauchy(rows) ** 3,
            rng.poisson(np.exp(1 + 0.3 * size)),
            np.array((0.25, 0.5, 2.0, 3.25))[rng.integers(4, size=rows)],
        ),
        axis=1,
    )


def columns_of(names: Sequence[str], rows: int = 400, seed: int = 0) -> Array:
    """Some columns of that table."""
    return sizes(rows, seed)[:, [NAMES.index(name) for name in names]]


def untrained(config: ModelConfig, rows: Array, columns: Sequence[str], seed: int = 0) -> AEM:
    """A model of these rows with an energy that matters."""
    torch.manual_seed(seed)
    model = AEM.for_data(config, rows, columns=columns).eval()
    with torch.no_grad():
        for name, parameter in model.energy.named_parameters():
            if parameter.ndim > 1:
                # A literal energy grows in no tail as fast as the proposal falls.
                spread = 4.0 if name.startswith("final") and config.energy == "relative" else 0.3
                parameter.normal_(0, spread / parameter.shape[-1] ** 0.5)
        model.arnn.final.weight.normal_(0, 0.3 / model.arnn.final.weight.shape[-1] ** 0.5)
    return model


def table_of(
    names: Sequence[str],
    *,
    config: ModelConfig = SMALL,
    seed: int = 0,
    treated: bool = True,
    moved: bool = True,
) -> TableModel:
    """A model of some columns: normal scores of heavy tails, offsets of those far from zero."""
    x = columns_of(names)
    discrete = recognise(x, names)
    raw = dequantise(x, names, discrete, np.random.default_rng(seed))
    counted = [names.index(column.column) for column in discrete]
    transform = Chain(heavy_tailed(raw, counted) if treated else ())
    offsets = np.zeros(len(names))
    if moved:
        offsets = far_from_zero(transform.forward(torch.from_numpy(x)).numpy())
        transform = transform.then(Offset(tuple(offsets.tolist())))
    config = replace(config, lattice=lattice(names, discrete, offsets))
    read = transform.forward(torch.from_numpy(raw)).numpy()
    return TableModel(untrained(config, read, names, seed), transform, discrete, {"seed": seed})


def plain() -> TableModel:
    """No transform at all."""
    return table_of(("size",), treated=False, moved=False)


def whitened() -> TableModel:
    rows = np.random.default_rng(0).normal(size=(400, 3)).cumsum(1) * [1, 20, 3] + 7
    return TableModel(untrained(replace(SMALL, whiten=True), rows, ("a", "b", "c")))


def literal() -> TableModel:
    """The paper's energy, on intervals, where its normaliser exists."""
    bounds = ((-9.0, 9.0), (-20.0, 20.0))
    rows = np.random.default_rng(0).normal(size=(400, 2)) * [1, 3]
    config = replace(SMALL, energy="literal", proposal="uniform", bounds=bounds)
    return TableModel(untrained(config, rows, ("a", "b")))


def unnamed() -> TableModel:
    """Columns without names."""
    rows = np.random.default_rng(0).normal(size=(400, 2)) * [1, 3]
    return TableModel(untrained(SMALL, rows, ()))


def ensemble() -> TableEnsemble:
    """Members of several orders, with columns of every kind among them."""
    orders = (NAMES, NAMES[::-1], ("count", "time", "tail", "level", "size"))
    members = [
        table_of(order, seed=place, treated=place != 1).in_order(NAMES)
        for place, order in enumerate(orders)
    ]
    return TableEnsemble(members, {"note": "orders"})


def turned() -> TableEnsemble:
    """One model under two symmetries."""
    model = table_of(("size", "tail"), moved=False)
    return TableEnsemble([model, model.behind(Symmetry(((0, 1), (-1, 0))))])


MODELS: dict[str, Callable[[], TableModel]] = {
    "plain": plain,
    "unnamed": unnamed,
    "whitened": whitened,
    "literal": literal,
    "discrete": lambda: table_of(("size", "count", "level"), moved=False),
    "offset": lambda: table_of(("time", "size")),
    "normal scores": lambda: table_of(("size", "tail"), moved=False),
    "all": lambda: table_of(NAMES),
    "reordered": lambda: table_of(NAMES).in_order(NAMES[::-1]),
}
ENSEMBLES: dict[str, Callable[[], TableEnsemble]] = {"ensemble": ensemble, "turned": turned}


def rows_for(table: TableModel | TableEnsemble, count: int = 40, seed: int = 7) -> Array:
    """Rows like those that the model was made for."""
    if set(table.columns) <= set(NAMES):
        return columns_of(table.columns, count, seed)
    return table.sample(count, seed)
