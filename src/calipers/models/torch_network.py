"""A PyTorch network whose answers do not depend on what it read before.

Some networks change themselves while they run: BigBird replaces its sparse attention by a full one at the first short
row, for good. What was loaded is put back before every pass.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from calipers.core import InferenceError
from calipers.metrics.arrays import Vectors
from calipers.models.batching import Batch
from calipers.models.tokenizer_files import first_line
from calipers.models.torch_linear import speed_up

if TYPE_CHECKING:
    from torch.nn import Module

Answer = TypeVar("Answer")
_TABLES = ("_modules", "_parameters", "_buffers")  # what a module holds by name
_PLAIN = (str, int, float, bool, type(None))


class ModuleState:
    """The modules of a network, and their attributes, as they are now."""

    def __init__(self, network: Module) -> None:
        modules = list(network.modules())
        self._before = [(module, _attributes(module)) for module in modules]
        self._public = [[name for name in module.__dict__ if not name.startswith("_")] for module in modules]

    def changed(self) -> bool:
        pairs = zip(self._before, self._public, strict=True)
        return any(_differ(before, module.__dict__, names) for (module, before), names in pairs)

    def restore(self) -> None:
        for module, before in self._before:
            for name in module.__dict__.keys() - before.keys():
                del module.__dict__[name]
            module.__dict__.update({name: dict(v) if name in _TABLES else v for name, v in before.items()})


def _attributes(module: Module) -> dict[str, Any]:
    return {name: dict(value) if name in _TABLES else value for name, value in module.__dict__.items()}


def _differ(before: dict[str, Any], now: dict[str, Any], public: list[str]) -> bool:
    """Whether an attribute was added or is another one. What was changed in its place is not noticed."""
    if len(before) != len(now) or any(not _same(before[name], now.get(name)) for name in public):
        return True
    tables = [(before[name], now[name]) for name in _TABLES]
    return any(len(a) != len(b) or any(a[key] is not b.get(key) for key in a) for a, b in tables)


def _same(old: Any, new: Any) -> bool:
    return old is new or (type(old) is type(new) and isinstance(old, _PLAIN) and bool(old == new))


class Network:
    """A network that may be run by several threads, one at a time if it changes itself."""

    def __init__(self, model: Any, device: str) -> None:
        self.model, self.device = model, device
        speed_up(model)
        self.changes_itself = False
        self._state = ModuleState(model)
        self._lock = threading.Lock()
        self._lengths: set[int | None] = set()  # of batches after which nothing had changed

    def why_alone(self) -> str:
        """Why rows must not share a batch: "" where that is for a trial to find out."""
        return "the model changes its own modules by the length of what it reads" if self.changes_itself else ""

    def call(self, compute: Callable[[], Answer], length: int | None = None) -> Answer:
        """What `compute` gives on the network as it was loaded. A change is looked for once for each length."""
        if not self.changes_itself:
            answer = compute()
            if length in self._lengths or not self._state.changed():
                self._lengths |= {length} - {None}
                return answer
            self.changes_itself = True
        with self._lock:
            self._state.restore()
            try:
                return compute()
            finally:
                self._state.restore()

    def wrap(self, function: Callable[..., Answer]) -> Callable[..., Answer]:
        """The function, which runs the network as it was loaded."""
        return lambda *arguments, **options: self.call(lambda: function(*arguments, **options))

    def run(self, batch: Batch, output: str, *, type_ids: bool = False) -> Vectors:
        """The named output of a transformers model for a batch."""
        inputs = {"input_ids": batch.ids, "attention_mask": batch.mask}
        if type_ids:
            inputs["token_type_ids"] = batch.type_ids
        try:
            values = self.call(lambda: self._compute(inputs, output), batch.ids.shape[1])
        except Exception as error:
            raise InferenceError(f"the model failed on a batch of {batch.ids.shape}: {first_line(error)}") from error
        return np.asarray(values.float().cpu().numpy())

    def _compute(self, inputs: dict[str, Any], output: str) -> Any:
        import torch

        with torch.inference_mode():
            tensors = {name: torch.from_numpy(array).to(self.device) for name, array in inputs.items()}
            return getattr(self.model(**tensors), output)
