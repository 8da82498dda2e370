import pytest
import torch

from aem.kernels import processor
from aem.nn.energy import EnergyNetwork


def network(blocks: int, dropout: float = 0.0) -> EnergyNetwork:
    net = EnergyNetwork(3, 4, hidden=16, blocks=blocks, dropout=dropout).double()
    for block in net.blocks:
        for parameter in block.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
    return net


@pytest.mark.parametrize("blocks", [0, 1, 4])
@pytest.mark.parametrize("chunk", [1, 7, 2048])
def test_values_and_gradients_are_those_of_plain_blocks(
    blocks: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processor, "CHUNK", chunk)
    net = network(blocks)
    embedded = torch.randn(5, 3, 3, dtype=torch.float64)
    projected = torch.randn(5, 16, dtype=torch.float64, requires_grad=True)
    inputs = (projected, *(p for n, p in net.named_parameters() if "from_context" not in n))

    def results() -> tuple[torch.Tensor, ...]:
        f = net(embedded, projected)
        return f, *torch.autograd.grad(f.square().sum(), inputs)

    fused = results()
    monkeypatch.setattr(EnergyNetwork, "_fuses_on_processor", lambda self, h: False)
    for a, b in zip(fused, results(), strict=True):
        torch.testing.assert_close(a, b)


def test_gradients_through_dropout() -> None:
    weights = [p.detach().requires_grad_() for p in network(2).blocks.parameters()]
    h = torch.randn(6, 16, dtype=torch.float64, requires_grad=True)

    def blocks(h: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(1)  # the same entries every time
        return processor.residual_blocks(h, 0.3, *weights)

    assert torch.autograd.gradcheck(blocks, (h, *weights))


def test_dropout_has_its_rate_and_keeps_the_mean() -> None:
    width = 64
    identity, zero = torch.eye(width), torch.zeros(width)
    h = torch.ones(4000, width)
    out = processor.residual_blocks(h, 0.2, identity, zero, identity, zero) - h
    dropped = (out == 0).float().mean()
    torch.testing.assert_close(dropped, torch.tensor(51 / 256), rtol=0, atol=3e-3)
    torch.testing.assert_close(out.mean(), torch.tensor(1.0), rtol=0, atol=4e-3)
    torch.testing.assert_close(out.var(0).mean(), torch.tensor(51 / 205), rtol=0.02, atol=0)
