"""The types of tensors on a GPU that older programs name, such as torch.cuda.FloatTensor."""

import torch
from torch._subclasses.fake_tensor import FakeTensor

from .patch import patch, patch_all

_NAMES = {
    "FloatTensor": torch.float32,
    "DoubleTensor": torch.float64,
    "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16,
    "LongTensor": torch.int64,
    "IntTensor": torch.int32,
    "ShortTensor": torch.int16,
    "CharTensor": torch.int8,
    "ByteTensor": torch.uint8,
    "BoolTensor": torch.bool,
}


class _Type(type):
    """A type of tensors on a GPU."""

    def __call__(cls, *data):
        if len(data) == 1 and not isinstance(data[0], (int, torch.Size)):
            return torch.tensor(data[0], dtype=cls.dtype, device="cuda")
        return torch.empty(*data, dtype=cls.dtype, device="cuda")

    def __instancecheck__(cls, value):
        return isinstance(value, torch.Tensor) and value.is_cuda and value.dtype == cls.dtype


def install(tracer, stack):
    kinds = {name: _Type(name, (), {"dtype": dtype, "is_cuda": True}) for name, dtype in _NAMES.items()}
    patch_all(stack, torch.cuda, kinds)
    kind_of = torch.Tensor.type

    def type_as(tensor, other):
        return tensor.to(device=other.device, dtype=other.dtype)

    def type_(tensor, kind=None, non_blocking=False, **options):
        if isinstance(kind, str) and kind.startswith("torch.cuda."):
            kind = kinds.get(kind.removeprefix("torch.cuda."), kind)
        if isinstance(kind, _Type):
            return tensor.to(tracer.gpu.device, kind.dtype, non_blocking)
        if kind is None and tensor.is_cuda:
            names = [name for name, dtype in _NAMES.items() if dtype == tensor.dtype]
            return f"torch.cuda.{names[0]}" if names else kind_of(tensor)
        return kind_of(tensor, kind, non_blocking, **options)

    set_usual = torch.set_default_tensor_type

    def set_default(kind):
        if isinstance(kind, str) and kind.startswith("torch.cuda."):
            kind = kinds.get(kind.removeprefix("torch.cuda."), kind)
        if not isinstance(kind, _Type):
            return set_usual(kind)
        torch.set_default_dtype(kind.dtype)
        torch.set_default_device(tracer.gpu.device)

    stack.callback(torch.set_default_dtype, torch.get_default_dtype())
    stack.callback(torch.set_default_device, None)
    patch(stack, torch, "set_default_tensor_type", set_default)
    for owner in (torch.Tensor, FakeTensor):
        patch_all(stack, owner, {"type_as": type_as, "type": type_})
