"""Parameters that programs and libraries make in ways of their own: of other classes than PyTorch's, such as
bitsandbytes' quantized ones, of the class that they find, and by their data.
"""

import functools

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn import functional as F
from torch.utils import swap_tensors

from .patch import patch

_PAGED = "states of a paged optimizer lie in managed memory, on the GPU as far as there is room, and are not counted"


@functools.lru_cache(maxsize=None)
def _fake_kind(kind):
    """The class of fake tensors that are also of a library's class of tensors."""
    return type(kind.__name__, (kind, FakeTensor), {"__module__": kind.__module__, "detach": _detach})


def _detach(tensor):
    """Modules make a new parameter of what they move, which wants a tensor of the same class."""
    made = FakeTensor.detach(tensor)
    vars(made).update({name: value for name, value in vars(tensor).items() if name not in vars(made)})
    made.__class__ = type(tensor)
    return made


def install(stack):
    original = torch.Tensor._make_subclass

    def make_subclass(kind, data, requires_grad=False, **options):
        if not isinstance(data, FakeTensor) or kind in (torch.Tensor, torch.nn.Parameter):
            return original(kind, data, requires_grad, **options)
        made = data.detach()
        made.__class__ = kind if issubclass(kind, FakeTensor) else _fake_kind(kind)
        return made.requires_grad_(requires_grad)

    patch(stack, torch.Tensor, "_make_subclass", staticmethod(make_subclass))
    new_fake = FakeTensor.__new__

    def new(kind, first=None, *args, **options):
        # accelerate makes a parameter on another device of its class, with what it knows.
        if isinstance(first, torch.Tensor):
            return torch.nn.Parameter(first, options.get("requires_grad", True))
        return new_fake(kind, first, *args, **options)

    patch(stack, FakeTensor, "__new__", staticmethod(new))
    meta = type(torch.nn.Parameter)

    def is_one(kind, value):
        # Before PyTorch 2.5 a parameter of another class counts as one of each class of parameters.
        if kind is torch.nn.Parameter and isinstance(value, torch.Tensor) and getattr(value, "_is_param", False):
            return True
        return super(meta, kind).__instancecheck__(value)

    patch(stack, meta, "__instancecheck__", is_one)
    data = torch.Tensor.data

    def set_data(tensor, value):
        # A parameter of a checkpoint that is given a fake tensor becomes one itself.
        if isinstance(value, FakeTensor) and type(tensor) in (torch.Tensor, torch.nn.Parameter):
            value = value.detach()
            made = torch.nn.Parameter(value, tensor.requires_grad) if type(tensor) is torch.nn.Parameter else value
            swap_tensors(tensor, made)
        else:
            data.__set__(tensor, value)

    patch(stack, torch.Tensor, "data", property(data.__get__, set_data))


def bitsandbytes(tracer, stack):
    """Returns the hooks of its modules."""

    def products(module):
        """A product with a 4-bit weight, which its kernel reads as it is or which is made whole first."""

        def product(a, b, shape, absmax, blocksize, kind, bias=None, absmax_8bit=None, code=None, offset=None):
            rows, columns = a.numel() // a.shape[-1], a.shape[-1]
            is_fused = (
                rows <= module._gemm_4bit_custom_max_m
                and columns % blocksize == 0
                and module._gemm_4bit_use_custom_fn(tracer.gpu.index, a.dtype, rows, shape[0], columns)
            )
            if is_fused:
                a = a.contiguous()
                return a.new_empty((*a.shape[:-1], shape[0]))
            if absmax_8bit is not None:
                absmax = torch.empty_like(absmax_8bit, dtype=torch.float32) + offset
            weight = a.new_empty(shape)
            return F.linear(a, weight, bias)

        if hasattr(module, "_gemm_4bit_use_custom_fn"):
            tracer.composed[torch.ops.bitsandbytes.gemm_4bit.default] = product

    def paged(module):
        """States that a paged optimizer keeps in managed memory, which PyTorch has no part in."""

        def get_paged(*shape, dtype=torch.float32, device=None):
            tracer.assumed[_PAGED] = True
            made = torch.zeros(shape, dtype=dtype, device="cpu")
            made.is_paged, made.page_deviceid = True, 0
            return made

        patch(stack, module, "get_paged", get_paged)
        for name in ("prefetch_tensor", "fill"):
            patch(stack, module, name, lambda *_, **__: None)

    return {"bitsandbytes.backends.cuda.ops": products, "bitsandbytes.functional": paged}
