"""Parameters and buffers that get their shapes from a first batch (torch.nn.LazyLinear): PyTorch makes them of tensors
that have no other class, and a fake tensor has one."""

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from .patch import patch

_KINDS = ("_is_param", "_is_buffer", "persistent")  # attributes that say which of the two it is


def _moved(name):
    def method(self, *args, **kwargs):
        return _become(type(self), getattr(FakeTensor, name)(self, *args, **kwargs), vars(self))

    return method


class _Lazy:
    """Has no elements until `materialize` gives it a shape."""

    cls_to_become = FakeTensor
    shape = torch.Tensor.shape
    __torch_function__ = torch._C._disabled_torch_function_impl

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            copy = torch.empty_like(self, requires_grad=self.requires_grad)
            memo[id(self)] = _become(type(self), copy, vars(self))
        return memo[id(self)]


class _Parameter(_Lazy, UninitializedParameter, FakeTensor):
    pass


class _Buffer(_Lazy, UninitializedBuffer, FakeTensor):
    """A module that moves takes the moved buffer in its place; of a parameter only the data."""

    to, cuda, cpu = _moved("to"), _moved("cuda"), _moved("cpu")
    half, float, double = _moved("half"), _moved("float"), _moved("double")
    bfloat16 = _moved("bfloat16")


def _become(kind, tensor, attributes):
    tensor.__class__ = kind
    vars(tensor).update({name: attributes[name] for name in _KINDS if name in attributes})
    return tensor


def _make(kind, requires_grad, device, dtype, **attributes):
    empty = torch.empty(0, device=device, dtype=dtype, requires_grad=requires_grad)
    return _become(kind, empty, attributes)


def _parameter(cls, requires_grad=True, device=None, dtype=None):
    return _make(_Parameter, requires_grad, device, dtype, _is_param=True)


def _buffer(cls, requires_grad=False, device=None, dtype=None, persistent=True):
    return _make(_Buffer, requires_grad, device, dtype, _is_buffer=True, persistent=persistent)


def install(stack):
    patch(stack, UninitializedParameter, "__new__", staticmethod(_parameter))
    patch(stack, UninitializedBuffer, "__new__", staticmethod(_buffer))
