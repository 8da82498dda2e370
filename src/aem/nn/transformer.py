"""A causal Transformer in ResMADE's place: one pass that gives every conditional its parameters.

Token d reads column d − 1 and attends to the tokens before it. Columns share all weights but a
position and a bias. That suits columns that are alike, such as the pixels of a picture: what is learnt
of one serves all of them, and there is far less to overfit with.

Tokens of whitened columns read the column itself, too. To ResMADE both would be the same, a linear
map away; to a token the other columns are not there yet.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from aem.base.randomness import dropout
from aem.errors import AemError
from aem.nn.contexts import check_context
from aem.nn.features import REACH, FourierFeatures, fourier_features
from aem.nn.functions import gelu
from aem.nn.rowwise import FEW, Linear, blockwise, linear, padded

HEAD = 32  # numbers a head of attention compares
WIDER = 4  # the inner layer of a block
# Beside a value a token reads asinh(STEEPNESS · value): sizes of small values, too, make a difference.
STEEPNESS = 4.0


def _all_digits(x: Tensor) -> torch.autocast:
    """Values and the parameters of conditionals need more digits than a step's mixed precision has."""
    return torch.autocast(x.device.type, enabled=False)


def attention(query: Tensor, key: Tensor, value: Tensor, *, causal: bool = False) -> Tensor:
    """What tokens [B, heads, T, width] hear of each other."""
    width = query.shape[-1]
    more = padded(width, query) - width  # so that all tokens are aligned alike
    if more and query.device.type == "cpu":
        query, key, value = (F.pad(t, (0, more)) for t in (query, key, value))

    def some(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(
            query, key, value, is_causal=causal, scale=width**-0.5
        )

    return blockwise(some, FEW, query, key, value)[..., :width]


class CausalBlock(nn.Module):
    """h + attention(norm h), then h + MLP(norm h); both start as nothing."""

    def __init__(self, hidden: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = max(hidden // HEAD, 1), dropout
        self.attention_norm, self.inner_norm = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.project, self.join = Linear(hidden, 3 * hidden), Linear(hidden, hidden)
        self.first = Linear(hidden, WIDER * hidden)
        self.second = Linear(WIDER * hidden, hidden)
        for last in (self.join, self.second):
            nn.init.zeros_(last.weight)
            nn.init.zeros_(last.bias)

    def forward(self, h: Float[Tensor, "B T H"]) -> Float[Tensor, "B T H"]:
        """All tokens at once."""
        query, key, value = self.projected(h)
        return self.finish(h, attention(query, key, value, causal=True))

    def projected(self, h: Float[Tensor, "B T H"]) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, each [B, heads, T, width]."""
        batch, tokens, hidden = h.shape
        projected: Tensor = self.project(self.attention_norm(h))
        parts = projected.view(batch, tokens, 3, self.heads, hidden // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        return query, key, value

    def finish(
        self, h: Float[Tensor, "B T H"], attended: Float[Tensor, "B N T W"]
    ) -> Float[Tensor, "B T H"]:
        """Everything after attention."""
        joined = self.join(attended.transpose(1, 2).reshape(h.shape))
        h = h + dropout(joined, self.dropout, training=self.training)
        inner = self.second(gelu(self.first(self.inner_norm(h))))
        return h + dropout(inner, self.dropout, training=self.training)


class CausalTransformer(nn.Module):
    """x → outputs [B, D, O], the d-th of which depends on x_<d (and the context) alone.

    With `sums`, a lower triangular matrix, a token also reads such sums of the columns up to its own.
    """

    sums: Tensor | None

    def __init__(
        self,
        embedding: FourierFeatures,
        outputs: int,
        *,
        hidden: int,
        blocks: int,
        dropout: float = 0.0,
        context_features: int = 0,
        sums: Float[Tensor, "D D"] | None = None,
    ) -> None:
        super().__init__()
        if hidden % max(hidden // HEAD, 1):
            raise AemError(
                f"a transformer's hidden width must be below {2 * HEAD} or a multiple of {HEAD}, "
                f"not {hidden}"
            )
        features = embedding.frequencies.shape[0]
        self.features, self.outputs, self.hidden = features, outputs, hidden
        self.context_features = context_features
        self.embedding = embedding
        self.register_buffer("sums", sums)
        self.reading = Linear(embedding.width + (1 if sums is None else 2), hidden)
        self.position = nn.Parameter(0.3 * torch.randn(features, hidden))
        self.blocks = nn.ModuleList(CausalBlock(hidden, dropout) for _ in range(blocks))
        self.norm = nn.LayerNorm(hidden)
        self.final = Linear(hidden, outputs, bias=False)
        nn.init.normal_(self.final.weight, std=0.02)
        self.bias = nn.Parameter(torch.zeros(features, outputs))
        self.from_context = (
            Linear(context_features, hidden, bias=False) if context_features else None
        )

    @property
    def numbers_a_row(self) -> int:
        """About what a pass holds at a time for each row."""
        return self.features * (3 + 2 * WIDER) * self.hidden

    def biases(self) -> Float[Tensor, "D O"]:
        """What each conditional's outputs are shifted by."""
        return self.bias

    def silence(self, count: int) -> None:
        """Make the first outputs of every conditional constants."""
        self.final.weight[:count] = 0

    def causal_blocks(self) -> list[CausalBlock]:
        """The blocks under their own type."""
        return [block for block in self.blocks if isinstance(block, CausalBlock)]

    def read(self, past: Float[Tensor, "B T"], first: int = 0) -> Float[Tensor, "B N H"]:
        """Of the leading columns those from the first on, as tokens hear of them."""
        past = past.clamp(-REACH, REACH)
        known = past.shape[1]
        x = past[:, first:]
        seen = [fourier_features(x, self.embedding.frequencies[first:known])]
        seen.append((STEEPNESS * x).asinh()[..., None] / 2)
        with _all_digits(x):
            if self.sums is not None:
                seen.append(linear(past, self.sums[first:known, :known])[..., None])
            read: Tensor = self.reading(torch.cat(seen, -1))
        return read

    def stand(
        self, context: Float[Tensor, "B Q"] | None, batch: int
    ) -> Float[Tensor, "B D H"] | Float[Tensor, "1 D H"]:
        """What the tokens are before they read: their positions and the context."""
        check_context(context, self.context_features, batch)
        stand = self.position[None]
        return stand if self.from_context is None else stand + self.from_context(context)[:, None]

    def emit(self, h: Float[Tensor, "B T H"], first: int = 0) -> Float[Tensor, "B T O"]:
        """Outputs of conditionals from the first on."""
        with _all_digits(h):
            emitted: Tensor = self.final(self.norm(h))
        return emitted + self.bias[first : first + h.shape[1]]

    def forward(
        self, x: Float[Tensor, "B D"], context: Float[Tensor, "B Q"] | None = None
    ) -> Float[Tensor, "B D O"]:
        """Emit the outputs of all D conditionals in one pass."""
        h = F.pad(self.read(x[:, :-1]), (0, 0, 1, 0)) + self.stand(context, len(x))
        for block in self.causal_blocks():
            h = block(h)
        return self.emit(h)
