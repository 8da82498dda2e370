"""The check that a network gets a conditioning vector if, and only if, it was built for one."""

from jaxtyping import Float
from torch import Tensor

from aem.errors import AemError


def check_context(context: Float[Tensor, "B Q"] | None, features: int, batch: int) -> None:
    """Raise an error if a conditioning vector is missing, unexpected or of the wrong shape.

    Parameters
    ----------
    context
        a vector per row, or None.
    features
        length of the vector that the network was built for; zero for none.
    batch
        how many rows the network reads.
    """
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
