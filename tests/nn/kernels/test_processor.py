import pytest
import torch

from aem.nn.energy import EnergyNetwork
from aem.nn.kernels import processor


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
    embedded = torch.randn(5, 3, 3, dtype=torch.float64, requires_grad=True)
    projected = torch.randn(5, 16, dtype=torch.float64, requires_grad=True)
    weights = (p for n, p in net.named_parameters() if n != "from_context.weight")
    inputs = (embedded, projected, *weights)

    def results() -> tuple[torch.Tensor, ...]:
        f = net(embedded, projected)
        return f, *torch.autograd.grad(f.square().sum(), inputs)

    fused = results()
    with torch.no_grad():
        torch.testing.assert_close(net(embedded, projected), fused[0])
    monkeypatch.setattr(EnergyNetwork, "_fuses_on_processor", lambda *_: False)
    for a, b in zip(fused, results(), strict=True):
        torch.testing.assert_close(a, b)


def test_gradients_through_dropout() -> None:
    net = network(2)
    net.dropout = 0.3
    inputs = (
        torch.randn(3, 2, 3, dtype=torch.float64, requires_grad=True),
        torch.randn(3, 16, dtype=torch.float64, requires_grad=True),
    )

    def energies(embedded: torch.Tensor, projected: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(1)  # the same entries every time
        f: torch.Tensor = net(embedded, projected)
        return f

    weights = [p for n, p in net.named_parameters() if n != "from_context.weight"]
    assert torch.autograd.gradcheck(energies, (*inputs, *weights))


def test_memory_passes_from_step_to_step_and_never_between_two_graphs() -> None:
    net = network(2)
    weights = [p for n, p in net.named_parameters() if n != "from_context.weight"]
    inputs = [(torch.randn(5, 2, 3).double(), torch.randn(5, 16).double()) for _ in range(2)]

    def gradients(f: torch.Tensor) -> list[torch.Tensor]:
        return list(torch.autograd.grad(f.sum(), weights, retain_graph=True))

    alone = [gradients(net(*some)) for some in inputs]
    both = [net(*some) for some in inputs]
    together = [gradients(f) for f in both]
    again = [gradients(f) for f in both]  # nothing was written in between
    for expected, *others in zip(alone, together, again, strict=True):
        for other in others:
            torch.testing.assert_close(other, expected, rtol=0, atol=0)
    assert len(processor._spare()) == 2
    late = net(*inputs[0])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        gradients(both[1])
    torch.testing.assert_close(gradients(late), alone[0], rtol=0, atol=0)
    processor.release()
    assert not processor._spare()


def test_dropout_has_its_rate_and_keeps_the_mean() -> None:
    # One hidden unit lives, read as it is: f = 1 + (0 where dropped, else the scale).
    one, zero = torch.ones(1, 1), torch.zeros(1)
    embedded, projected = torch.zeros(200_000, 1, 1), torch.ones(200_000, 1).requires_grad_()
    f = processor.energy(embedded, projected, 0.2, one, zero, one[0], zero, one, zero, one, zero)
    added = f.detach() - 1
    torch.testing.assert_close(
        (added == 0).float().mean(), torch.tensor(51 / 256), rtol=0, atol=3e-3
    )
    torch.testing.assert_close(added.mean(), torch.tensor(1.0), rtol=0, atol=4e-3)
    torch.testing.assert_close(added.var(), torch.tensor(51 / 205), rtol=0.02, atol=0)
