"""Memory of the kernels of losses: they make the loss of each element before they reduce it (Loss.cpp, Loss.cu and
ReduceOps.cpp of PyTorch).
"""

import contextlib
import math

import torch

from . import reduction

_aten = torch.ops.aten


def _result_bytes(*tensors):
    dtype = tensors[0].dtype
    for tensor in tensors[1:]:
        dtype = torch.promote_types(dtype, tensor.dtype)
    shape = torch.broadcast_shapes(*(tensor.size() for tensor in tensors))
    return math.prod(shape) * dtype.itemsize


def _reduces(func, args, kwargs):
    """Returns true if the mean or the sum is wanted: 1 or 2, not 0."""
    names = [argument.name for argument in func._schema.arguments]
    at = names.index("reduction")
    return (args[at] if len(args) > at else kwargs.get("reduction", 1)) != 0


def _of_elements(tracer, func, args, kwargs, result):
    """mse_loss and smooth_l1_loss have their result first, then the losses."""
    if not _reduces(func, args, kwargs):
        return
    with tracer.held(func.name(), [_result_bytes(args[0], args[1])]):
        _mean(tracer, func, args, kwargs, result)


def _mean(tracer, func, args, kwargs, result):
    if _reduces(func, args, kwargs):
        tracer.temporaries(func.name(), reduction.of_sum(tracer.gpu, args[0], None))


@contextlib.contextmanager
def _huber(tracer, func, args, kwargs):
    size = args[0].numel() * args[0].element_size() if _reduces(func, args, kwargs) else 0
    with tracer.held(func.name(), [size]):
        yield


@contextlib.contextmanager
def _with_logits(tracer, func, args, kwargs):
    """log(sigmoid(x)), the weights of positives, and 1 - target, which becomes the loss."""
    name = func.name()
    logits, target = args[0], args[1]
    weight = args[3] if len(args) > 3 else kwargs.get("pos_weight")
    with tracer.held(name, [logits.numel() * logits.element_size()]):
        if weight is not None:
            with tracer.held(name, [_result_bytes(weight)]):
                tracer.temporaries(name, [_result_bytes(weight, target)])
        with tracer.held(name, [_result_bytes(target) if _reduces(func, args, kwargs) else 0]):
            yield


def binary_cross_entropy(tracer, func, args, kwargs):
    """The loss of all elements takes the memory of each: it is resized to one number."""
    loss = torch.empty_like(args[0])
    return loss.resize_(()) if _reduces(func, args, kwargs) else loss


def _mean_and_copy(tracer, func, args, kwargs, result):
    if _reduces(func, args, kwargs):
        with tracer.held(func.name(), [args[0].element_size()]):
            _mean(tracer, func, args, kwargs, result)


@contextlib.contextmanager
def _logsumexp(tracer, func, args, kwargs):
    """The largest of each row, and the exponents of all elements."""
    name = func.name()
    tensor, dims = args[0], args[1]
    reduced = [dim % max(tensor.dim(), 1) for dim in dims] or range(tensor.dim())
    rows = math.prod(size for dim, size in enumerate(tensor.size()) if dim not in reduced)
    with tracer.held(name, [rows * tensor.element_size()]):
        tracer.temporaries(name, reduction.of_sum(tracer.gpu, tensor, dims))
        tracer.temporaries(name, [rows * tensor.element_size(), rows])
        with tracer.held(name, [tensor.numel() * tensor.element_size()]):
            yield
            tracer.temporaries(name, reduction.of_sum(tracer.gpu, tensor, dims))


# Functions of an op that gives blocks to hold while its results get their memory, and to take after that.
BEFORE = {
    _aten.binary_cross_entropy_with_logits.default: _with_logits,
    _aten.huber_loss.default: _huber,
    _aten.logsumexp.default: _logsumexp,
}
AFTER = {
    _aten.binary_cross_entropy.default: _mean_and_copy,
    _aten.binary_cross_entropy_with_logits.default: _mean,
    _aten.huber_loss.default: _mean,
    _aten.mse_loss.default: _of_elements,
    _aten.smooth_l1_loss.default: _of_elements,
}
