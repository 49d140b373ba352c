"""Ops of a traced program as a CPU computes them, where somebody asks for their values: kernels that only a GPU has
get others in their place, and products of half precision run in a type for which the CPU has fast kernels.
"""

import contextlib

import torch
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.flop_counter import flop_registry

_aten = torch.ops.aten
_LOW = (torch.float16, torch.bfloat16)
_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)


@contextlib.contextmanager
def plain_torch():
    """In the body ops run as in a program of its own: without modes, transforms of torch.func, autocast and gradients."""
    with (
        torch._C.DisableTorchFunction(),
        temporarily_clear_interpreter_stack(),
        _disable_current_modes(),
        torch.inference_mode(False),
        torch.no_grad(),
        torch._C._ExcludeDispatchKeyGuard(_AUTOCAST),
    ):
        yield


def run(func, args, kwargs):
    """The result of an op on real tensors; call it inside `plain_torch`."""
    replaced = _REPLACED.get(func)
    if replaced is not None:
        return replaced(*args, **kwargs)
    if getattr(func, "_overloadpacket", None) in flop_registry:
        return func(*_cast(args), **_cast(kwargs))
    try:
        return func(*args, **kwargs)
    except RuntimeError as error:  # a CPU has fewer kernels of half precision
        if "not implemented for" not in str(error):
            raise
        return func(*_cast(args), **_cast(kwargs))


def _cast(value):
    """Arguments with tensors of half precision as float32; the recipe of the result knows its type."""
    if isinstance(value, torch.Tensor):
        return value.float() if value.dtype in _LOW else value
    if isinstance(value, dict):
        return {name: _cast(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_cast(inner) for inner in value]
    return value


def _attention(query, key, value, bias=None, *, dropout=0.0, is_causal=False, scale=None):
    query, key, value, bias = _cast([query, key, value, bias])
    groups = query.size(1) // key.size(1)
    if groups > 1:
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    fused = _aten._scaled_dot_product_flash_attention_for_cpu  # which has no dropout
    return fused(query, key, value, 0.0, is_causal, attn_mask=bias, scale=scale)[:1]


def _flash(query, key, value, dropout=0.0, is_causal=False, debug=False, *, scale=None):
    return _attention(query, key, value, dropout=dropout, is_causal=is_causal, scale=scale)


def _biased(query, key, value, bias, sums, dropout=0.0, is_causal=False, *rest, scale=None):
    return _attention(query, key, value, bias, dropout=dropout, is_causal=is_causal, scale=scale)


def _histc(tensor, *args, **kwargs):
    return _aten.histc.default(tensor.float(), *args, **kwargs)


def _softmax(op):
    return lambda input, dim, from_half: op(input.float() if from_half else input, dim, False)


_REPLACED = {
    _aten._efficientzerotensor.default: _aten.zeros.default,
    _aten.histc.default: _histc,
    _aten._softmax.default: _softmax(_aten._softmax.default),
    _aten._log_softmax.default: _softmax(_aten._log_softmax.default),
}
ATTENTION = {}  # ops of which the first result is computed alone
for _name, _function in (
    ("_scaled_dot_product_flash_attention", _flash),
    ("_scaled_dot_product_efficient_attention", _biased),
    ("_scaled_dot_product_cudnn_attention", _biased),
):
    if hasattr(_aten, _name):
        ATTENTION[getattr(_aten, _name).default] = _function
_REPLACED.update(ATTENTION)
