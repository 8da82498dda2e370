"""A conditioning vector must be there if a network was built for one, and only then."""

from jaxtyping import Float
from torch import Tensor

from aem.errors import AemError


def check_context(context: Float[Tensor, "B Q"] | None, features: int, batch: int) -> None:
    """Refuse a context that does not fit."""
    if features == 0:
        if context is not None:
            raise AemError("this model was built without a context but was given one")
        return
    if context is None:
        raise AemError(f"this model needs a context of {features} numbers per row")
    if context.shape != (batch, features):
        raise AemError(
            f"the context has shape {tuple(context.shape)}, this model needs {(batch, features)}"
        )
