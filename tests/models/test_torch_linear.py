"""Linear layers through oneDNN give what PyTorch's own give."""

import copy

import pytest
import torch
from transformers import BertConfig, BertForMaskedLM

from calipers.models import torch_linear
from calipers.models.torch_linear import arranged, speed_up

HIDDEN = BertConfig(vocab_size=200, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(64,), (0, 64), (1, 64), (7, 64), (3, 5, 64), (2, 300, 64)])
def test_a_layer_gives_the_same(shape: tuple[int, ...], bias: bool) -> None:
    torch.manual_seed(0)
    layer = torch.nn.Linear(64, 96, bias=bias)
    batch = torch.randn(shape)
    with torch.inference_mode():
        torch.testing.assert_close(arranged(layer)(batch), layer(batch), atol=1e-5, rtol=1e-5)


def test_a_layer_reads_a_view() -> None:
    """A head takes the first position of each row; attention moves heads to the front."""
    layer, batch = torch.nn.Linear(64, 96), torch.randn(4, 9, 64)
    with torch.inference_mode():
        for view in (batch[:, 0], batch.transpose(0, 1)):
            torch.testing.assert_close(arranged(layer)(view), layer(view), atol=1e-5, rtol=1e-5)


def test_a_network_gives_the_same_and_keeps_its_weights() -> None:
    torch.manual_seed(0)
    network = BertForMaskedLM(HIDDEN).eval()
    fast = copy.deepcopy(network)
    head = fast.cls.predictions.decoder
    assert speed_up(fast, faster=True) == 2 * 6 + 1  # the head's weights are the embeddings: they are not held twice
    assert "forward" not in head.__dict__
    ids = torch.randint(0, 200, (3, 40))
    with torch.inference_mode():
        torch.testing.assert_close(fast(ids).logits, network(ids).logits, atol=1e-5, rtol=1e-5)
    for one, other in zip(network.parameters(), fast.parameters(), strict=True):
        assert torch.equal(one, other)


def test_other_types_and_small_layers_stay() -> None:
    assert speed_up(torch.nn.Linear(64, 96).double(), faster=True) == 0
    assert speed_up(torch.nn.Linear(64, 96).bfloat16(), faster=True) == 0
    assert speed_up(torch.nn.Linear(64, 2), faster=True) == 0
    assert speed_up(torch.nn.Linear(64, 96), faster=False) == 0


@pytest.mark.parametrize(
    ("maker", "flags", "expected"),
    [
        ("AuthenticAMD", "fpu avx2 avx512f", True),
        ("AuthenticAMD", "fpu avx2", False),
        ("GenuineIntel", "fpu avx2 avx512f", False),
        (None, None, False),
    ],
)
def test_the_processors_maker_decides_and_no_clock(
    maker: str | None, flags: str | None, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = {"vendor_id": maker, "flags": flags}
    monkeypatch.setattr(torch_linear, "processor_fact", facts.get)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    assert torch_linear.onednn_is_faster.__wrapped__() is expected
