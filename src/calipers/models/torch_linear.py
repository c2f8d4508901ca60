"""Linear layers of a PyTorch network by the faster of the libraries that come with it.

PyTorch gives float32 products to MKL, which has no AVX-512 kernels for processors of other makers: on an AMD Zen 5 it
reaches 115 GFLOP/s on a core where oneDNN, in the same package, reaches 260. A probe of some milliseconds decides, by
the time of the processor, so that other work on the machine does not. Both add in float32, in another order.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from calipers.metrics.threads import torch_threads

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Linear, Module

_PROBE = (256, 384, 1_536)  # tokens, inputs and outputs of the layer that decides: 0.3 GFLOP
_CLEARLY = 0.7  # of the time of PyTorch's own product: below it the other library is used
_LEAST = 4_096  # weights of a layer that is worth it
_TOKENS = 2_048  # that the weights are arranged for; other numbers work as well


def speed_up(network: Module, faster: bool | None = None) -> int:
    """Give the float32 layers of a network on the processor to oneDNN where that is clearly faster (`faster` is for
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

    tokens, inputs, outputs = _PROBE
    layer, batch = torch.nn.Linear(inputs, outputs), torch.ones(tokens, inputs)
    try:
        with torch_threads(1), torch.inference_mode():
            return _best_time(arranged(layer), batch) < _CLEARLY * _best_time(layer.forward, batch)
    except (AttributeError, RuntimeError, NotImplementedError):  # a PyTorch without oneDNN, or with another interface
        return False


def _best_time(work: Callable[[Tensor], Tensor], batch: Tensor) -> float:
    times = []
    for _ in range(5):
        start = time.thread_time()
        work(batch)
        times.append(time.thread_time() - start)
    return min(times[1:])
