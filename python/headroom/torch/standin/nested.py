"""Nested tensors of rows of different lengths: those with a ragged dimension (torch.jagged) are values and offsets, and run
as PyTorch has them. Those with a list of sizes (torch.strided), which C++ keeps, are traced as jagged ones.
"""

import itertools

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.nested._internal import sdpa
from torch.nested._internal.nested_tensor import NestedTensor

from ..errors import one_line, refusal
from .patch import patch, patch_all


def _extent(number, coeff):
    if hasattr(torch._C, "_get_nested_int"):
        return torch._C._get_nested_int(number, coeff)
    from torch.nested._internal.nested_int import NestedIntNode

    return torch.SymInt(NestedIntNode(number, coeff))


def install(tracer, stack):
    numbers = itertools.count()

    def nested_int(tensor, *, coeff=1):
        """The extent of a ragged dimension, one for all that share their offsets."""
        storage = tensor.untyped_storage()
        if not hasattr(storage, "_headroom_ragged"):
            storage._headroom_ragged = next(numbers)
        return _extent(storage._headroom_ragged, coeff)

    patch(stack, FakeTensor, "get_nested_int", nested_int)

    def new(cls, values, offsets, **kwargs):
        """C++ sees it on the CPU, as its values."""
        tracer.values.cheap(offsets)  # while they are known, as gradients want them
        tracer.depth += 1
        try:
            return original_new(cls, values, offsets, **kwargs)
        finally:
            tracer.depth -= 1

    original_new = NestedTensor.__new__
    patch(stack, NestedTensor, "__new__", staticmethod(new))
    for name in ("device", "is_cuda", "is_cpu"):
        patch(stack, NestedTensor, name, property(lambda tensor, name=name: getattr(tensor._values, name)))

    def runs_in_halves(params, debug=False):
        return params.query.dtype in (torch.float16, torch.bfloat16)

    kernels = {"can_use_flash_attention": runs_in_halves, "can_use_efficient_attention": lambda *_, **__: True}
    patch_all(stack, sdpa, kernels)  # which C++ would ask the driver for

    def jagged(original):
        def make(*args, layout=None, **kwargs):
            if layout is not torch.jagged:
                tracer.assumed["nested tensors are traced as with layout=torch.jagged"] = True
            try:
                return original(*args, layout=torch.jagged, **kwargs)
            except RuntimeError as error:
                if layout is torch.jagged:
                    raise
                reason = f"this nested tensor has no form with layout=torch.jagged: {one_line(error)}"
                raise refusal(f"{reason}; pad it to a dense one") from error

        return make

    makers = {name: jagged(getattr(torch.nested, name)) for name in ("nested_tensor", "as_nested_tensor")}
    patch_all(stack, torch.nested, makers)
    # An encoder makes some of a batch whose padding stands at the ends; it takes the batch as it is instead.
    patch(stack, torch, "_nested_tensor_from_mask_left_aligned", lambda *_: False)
