"""A causal Transformer in place of ResMADE: the parameters of all conditionals in one pass.

Token d reads column d − 1 and attends to the tokens before it. Columns share all weights but a
position and a bias. This suits columns that are alike, such as the pixels of a picture: they share
what is learned, and the network overfits less.

Tokens of whitened columns read the column before whitening as well. To ResMADE the two differ by a
linear map, but a token cannot undo it, as it does not know the other columns yet.
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

HEAD = 32  # width of an attention head
WIDER = 4  # width of the feed-forward layer, as a multiple of the hidden width
# A token also reads asinh(STEEPNESS · value), which resolves the size of small values.
STEEPNESS = 4.0


def _all_digits(x: Tensor) -> torch.autocast:
    """Switch mixed precision off, for values and parameters, which need more digits."""
    return torch.autocast(x.device.type, enabled=False)


def attention(query: Tensor, key: Tensor, value: Tensor, *, causal: bool = False) -> Tensor:
    """Compute scaled dot-product attention.

    Parameters
    ----------
    query
        queries [B, heads, T, width].
    key
        keys, of the same shape.
    value
        values, of the same shape.
    causal
        whether a token hears only itself and those before it.
    """
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
    """A residual block of attention and a feed-forward layer, both of which start at zero.

    Parameters
    ----------
    hidden
        width of a token.
    dropout
        share of the units left out in training.
    """

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
        """Apply the block to all tokens.

        Parameters
        ----------
        h
            tokens of B rows, T each.
        """
        query, key, value = self.projected(h)
        return self.finish(h, attention(query, key, value, causal=True))

    def projected(self, h: Float[Tensor, "B T H"]) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values of tokens, each [B, heads, T, width].

        Parameters
        ----------
        h
            tokens of B rows, T each.

        Returns
        -------
        query : tensor [B, N, T, W]
            queries.
        key : tensor [B, N, T, W]
            keys.
        value : tensor [B, N, T, W]
            values.
        """
        batch, tokens, hidden = h.shape
        projected: Tensor = self.project(self.attention_norm(h))
        parts = projected.view(batch, tokens, 3, self.heads, hidden // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        return query, key, value

    def finish(
        self, h: Float[Tensor, "B T H"], attended: Float[Tensor, "B N T W"]
    ) -> Float[Tensor, "B T H"]:
        """Apply the rest of the block, after attention.

        Parameters
        ----------
        h
            the tokens that the block read.
        attended
            what attention made of them, by head.
        """
        joined = self.join(attended.transpose(1, 2).reshape(h.shape))
        h = h + dropout(joined, self.dropout, training=self.training)
        inner = self.second(gelu(self.first(self.inner_norm(h))))
        return h + dropout(inner, self.dropout, training=self.training)


class CausalTransformer(nn.Module):
    """x → outputs [B, D, O], the d-th of which depends on x_<d (and the context) alone.

    Parameters
    ----------
    embedding
        Fourier features of each column, which tokens read.
    outputs
        O, how many numbers each conditional needs.
    hidden
        width of a token: below 64, or a multiple of 32.
    blocks
        blocks of attention and an inner layer four times as wide.
    dropout
        share of the units left out in training.
    context_features
        length of a conditioning vector that every output may depend on; zero for none.
    sums
        a lower triangular matrix: a token also reads such sums of the columns up to its own. Models
        of whitened columns read the columns themselves this way.
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
        """Roughly, how many numbers a forward pass holds in memory per row."""
        return self.features * (3 + 2 * WIDER) * self.hidden

    def biases(self) -> Float[Tensor, "D O"]:
        """Return the bias of each conditional's outputs."""
        return self.bias

    def silence(self, count: int) -> None:
        """Make the first outputs of every conditional constant, by setting their weights to zero.

        Parameters
        ----------
        count
            how many of the O outputs.
        """
        self.final.weight[:count] = 0

    def causal_blocks(self) -> list[CausalBlock]:
        """Return the blocks with their type."""
        return [block for block in self.blocks if isinstance(block, CausalBlock)]

    def read(self, past: Float[Tensor, "B T"], first: int = 0) -> Float[Tensor, "B N H"]:
        """Embed columns as input of the tokens.

        Parameters
        ----------
        past
            the leading columns of standardised rows.
        first
            number of the first column to embed; those before it are known already.
        """
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
        """Return the tokens without their input: positions and context.

        Parameters
        ----------
        context
            a conditioning vector per row; None for a network without.
        batch
            how many rows are read, which the context must fit.
        """
        check_context(context, self.context_features, batch)
        stand = self.position[None]
        return stand if self.from_context is None else stand + self.from_context(context)[:, None]

    def emit(self, h: Float[Tensor, "B T H"], first: int = 0) -> Float[Tensor, "B T O"]:
        """Return outputs of consecutive conditionals.

        Parameters
        ----------
        h
            their tokens after all blocks.
        first
            number of the first of them.
        """
        with _all_digits(h):
            emitted: Tensor = self.final(self.norm(h))
        return emitted + self.bias[first : first + h.shape[1]]

    def forward(
        self, x: Float[Tensor, "B D"], context: Float[Tensor, "B Q"] | None = None
    ) -> Float[Tensor, "B D O"]:
        """Emit the outputs of all D conditionals in one pass.

        Parameters
        ----------
        x
            rows, usually standardised: values beyond ±1e4 are clamped.
        context
            a conditioning vector per row; None for a network without.
        """
        h = F.pad(self.read(x[:, :-1]), (0, 0, 1, 0)) + self.stand(context, len(x))
        for block in self.causal_blocks():
            h = block(h)
        return self.emit(h)
