"""Linear layers through oneDNN give what PyTorch's own give."""

import copy

import pytest
import torch
from transformers import BertConfig, BertForMaskedLM

from calipers.models.torch_linear import arranged, onednn_is_faster, speed_up

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


def test_the_probe_decides_for_the_process() -> None:
    first = onednn_is_faster()
    assert isinstance(first, bool)
    assert onednn_is_faster() is first
    assert torch.get_num_threads() >= 1
