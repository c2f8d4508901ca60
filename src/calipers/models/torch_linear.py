"""Linear layers of a PyTorch network by the faster of the libraries that come with it.

PyTorch gives float32 products to MKL, whose AVX-512 kernels are for processors of its own maker: on an AMD Zen 5
it reaches 115 GFLOP/s on a core where oneDNN, in the same package, reaches 260. Both add in float32, in another order,
so the processor's maker decides and no clock does: two processes on one machine give the same bits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from calipers.core.machine import processor_fact

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Linear, Module

_LEAST = 4_096  # weights of a layer that is worth it
_SMALLEST = (64, 64)  # inputs and outputs of the layer that shows whether oneDNN is there
_TOKENS = 2_048  # that the weights are arranged for; other numbers work as well


def speed_up(network: Module, faster: bool | None = None) -> int:
    """Give the float32 layers of a network on the processor to oneDNN where that is faster (`faster` is for
    tests); how many. The weights stay in place beside the arranged ones, since other code may read them; large ones
    that another module reads, as a head reads the embeddings, are not held twice."""
    layers = _layers(network)
    if not layers or not (onednn_is_faster() if faster is None else faster):
        return 0
    for layer in layers:
        layer.forward = arranged(layer)
    return len(layers)


def _layers(network: Module) -> list[Linear]:
    from torch import float32
    from torch.nn import Linear

    readers = Counter(id(weight) for module in network.modules() for weight in module.parameters(recurse=False))
    return [
        module
        for module in network.modules()
        if type(module) is Linear
        and (module.weight.dtype, module.weight.device.type) == (float32, "cpu")
        and module.weight.numel() >= _LEAST
        and readers[id(module.weight)] == 1
    ]


def arranged(layer: Linear) -> Callable[[Tensor], Tensor]:
    """The layer by oneDNN, with its weights as that library wants them."""
    import torch

    weight, bias = layer.weight.detach(), None if layer.bias is None else layer.bias.detach()
    operations: Any = torch.ops.mkldnn
    with torch.inference_mode():
        ready = operations._reorder_linear_weight(weight, _TOKENS)

    def forward(input: Tensor) -> Tensor:
        if input.dtype is not torch.float32:
            return torch.nn.functional.linear(input, weight, bias)
        answer: Tensor = operations._linear_pointwise(input, ready, bias, "none", [], "")
        return answer

    return forward


@cache
def onednn_is_faster() -> bool:
    import torch

    has_kernels = processor_fact("vendor_id") == "GenuineIntel" or "avx512f" not in (processor_fact("flags") or "")
    if has_kernels or not torch.backends.mkl.is_available():
        return False
    try:
        arranged(torch.nn.Linear(*_SMALLEST))(torch.ones(1, _SMALLEST[0]))
    except (AttributeError, RuntimeError, NotImplementedError):  # a PyTorch without oneDNN, or with another interface
        return False
    return True
