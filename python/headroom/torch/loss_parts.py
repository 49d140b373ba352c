"""A loss in parts of its rows: the logits of each are made for it, and again in its backward pass, so that those of all
are never live at once. Finds the layer whose results the loss takes as they are.
"""

import weakref

import torch
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from .errors import TraceError
from .standin.patch import patch


class LossInParts:
    """Its patches last as long as `stack`. `count` parts are made of a loss of the layer `head`, where there is one."""

    def __init__(self, stack):
        self.count = 1
        self.head = None
        self.found = None  # a reference to the layer that gave the logits of the last loss
        self._is_used = False
        self._multiply, self._loss = torch.nn.Linear.forward, F.cross_entropy
        patch(stack, torch.nn.Linear, "forward", lambda layer, x: self._forward(layer, x))
        patch(stack, F, "cross_entropy", self._cross_entropy)

    def require_use(self):
        """Raises where gradients are to be computed, and no loss was made in parts."""
        if self.head is not None and not self._is_used:
            raise TraceError("no loss takes the results of that layer as they are")

    def _forward(self, layer, x):
        if layer is not self.head or not torch.is_grad_enabled():
            y = self._multiply(layer, x)
            if not is_functorch_wrapped_tensor(y):  # of torch.func, without a storage
                y.untyped_storage()._headroom_head = weakref.ref(layer)
            return y
        y = x.new_empty(1).expand(*x.shape[:-1], layer.out_features)  # for the loss, which makes the parts
        y.untyped_storage()._headroom_rows = x.flatten(0, -2)
        return y

    def _cross_entropy(self, logits, target, *args, **kwargs):
        if is_functorch_wrapped_tensor(logits):
            return self._loss(logits, target, *args, **kwargs)
        storage = logits.untyped_storage()
        rows = getattr(storage, "_headroom_rows", None)
        if rows is None:
            self.found = getattr(storage, "_headroom_head", self.found)
            return self._loss(logits, target, *args, **kwargs)
        is_mean = kwargs.get("reduction", "mean") == "mean"
        is_usual = not args and kwargs.get("weight") is None and kwargs.get("reduction", "mean") in ("mean", "sum")
        if not is_usual or logits.shape != (len(rows), self.head.out_features):
            raise TraceError("this loss cannot be made in parts")
        self._is_used = True

        def part(x, wanted):
            return self._loss(self._multiply(self.head, x), wanted, **{**kwargs, "reduction": "sum"})

        parts = zip(rows.chunk(self.count), target.chunk(self.count))
        total = sum(checkpoint(part, *rows_and_targets, use_reentrant=False) for rows_and_targets in parts)
        return total / target.numel() if is_mean else total
