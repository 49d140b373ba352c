"""Ops whose results differ between a CPU and a GPU: their shapes and types as the GPU's kernels give them."""

import functools

import torch

from . import losses
from .errors import data_dependent

_aten = torch.ops.aten
_LOW = (torch.float16, torch.bfloat16)


def _native_layer_norm(tracer, func, args, kwargs):
    """On a GPU mean and 1/deviation are float32, whatever the type of the input."""
    tensor, shape = args[0], args[1]
    if tensor.dtype not in _LOW:
        return func(*args, **kwargs)
    axis = tensor.dim() - len(shape)
    stat_shape = list(tensor.size()[:axis]) + [1] * len(shape)
    out = torch.empty(tensor.size(), dtype=tensor.dtype)
    mean = torch.empty(stat_shape, dtype=torch.float32)
    return out, mean, torch.empty(stat_shape, dtype=torch.float32)


def _native_batch_norm(tracer, func, args, kwargs):
    """cuDNN's and PyTorch's kernels keep mean and 1/deviation as float32."""
    tensor, training = args[0], args[5]
    out = torch.empty_like(tensor)
    channels = tensor.size(1) if training else 0
    kind = torch.float32 if tensor.dtype in _LOW else tensor.dtype
    return out, torch.empty((channels,), dtype=kind), torch.empty((channels,), dtype=kind)


def _embedding_bag(tracer, func, args, kwargs):
    """A GPU keeps the bag of each index and the size of each bag in all modes (_embedding_bag_cuda)."""
    indices, offsets, mode = args[1], args[2], args[4] if len(args) > 4 else 0
    out, _, _, largest = func(*args, **kwargs)
    empty = [torch.empty(shape, dtype=indices.dtype) for shape in (indices.shape, offsets.shape, (0,))]
    return out, *empty[:2], largest if mode == 2 else empty[2]


def _histc(tracer, func, args, kwargs):
    """A CPU counts no integers; Transformers counts the tokens of each expert so."""
    tensor = args[0]
    if tensor.is_floating_point():
        return func(*args, **kwargs)
    bins = kwargs.get("bins", args[1] if len(args) > 1 else 100)
    return torch.empty((bins,), dtype=tensor.dtype)


def _ctc_loss(tracer, func, args, kwargs):
    """A table of all steps and of the longest target with blanks between its symbols (ctc_loss_gpu_template). Where the
    lengths are unknown, the longest target fills its row.
    """
    log_probs, targets, lengths = args[0], args[1], tracer.values.cheap(args[3])
    steps, batch = log_probs.size(0), log_probs.size(1)
    if lengths is not None:
        with torch.utils._python_dispatch._disable_current_modes():
            longest = int(lengths.max())
    elif targets.dim() == 2:
        longest = targets.size(1)
    else:
        raise data_dependent("ctc_loss() of targets in one row")
    return log_probs.new_empty((batch,)), log_probs.new_empty((batch, steps, 2 * longest + 1))


def _ctc_loss_backward(tracer, func, args, kwargs):
    """Another such table, and the gradient."""
    with tracer.held("aten::_ctc_loss_backward", [args[6].untyped_storage().nbytes()]):
        return torch.empty_like(args[1])


# The parts of SyncBatchNorm, which a CPU does not have (Normalization.cuh): statistics are float32.


def _statistics(tensor, count):
    kind = torch.float32 if tensor.dtype in _LOW else tensor.dtype
    return [torch.empty((tensor.size(1),), dtype=kind) for _ in range(count)]


def _batch_norm_stats(tracer, func, args, kwargs):
    return tuple(_statistics(args[0], 2))


def _like_input(tracer, func, args, kwargs):
    return torch.empty_like(args[0])


def _batch_norm_backward_reduce(tracer, func, args, kwargs):
    gradient, weight, needs_input, needs_weight, needs_bias = args[0], *args[4:8]
    sums = _statistics(gradient, 2) if needs_input else [torch.empty(0), torch.empty(0)]
    kind = weight.dtype if weight is not None else torch.float32
    for is_needed in (needs_weight, needs_bias):
        sums.append(torch.empty((gradient.size(1),) if is_needed else (0,), dtype=kind))
    return tuple(sums)


def _product_of_type(tracer, func, args, kwargs):
    """A product of halves whose result is of another type, which a CPU does not have."""
    if "out" in kwargs:
        return kwargs["out"]
    place = [argument.name for argument in func._schema.arguments].index("out_dtype")
    left, right, dtype = args[place - 2 : place + 1]
    return left.new_empty((*left.shape[:-1], right.shape[-1]), dtype=dtype)


PRODUCTS_OF_TYPE = [  # from PyTorch 2.8 on
    getattr(op, overload)
    for op in (_aten.mm, _aten.addmm, _aten.bmm, _aten.baddbmm)
    for overload in ("dtype", "dtype_out")
    if overload in op.overloads()
]
REPLACED = {
    **dict.fromkeys(PRODUCTS_OF_TYPE, _product_of_type),
    _aten.binary_cross_entropy.default: losses.binary_cross_entropy,
    _aten.batch_norm_stats.default: _batch_norm_stats,
    _aten.batch_norm_gather_stats.default: _batch_norm_stats,
    _aten.batch_norm_gather_stats_with_counts.default: _batch_norm_stats,
    _aten.batch_norm_elemt.default: _like_input,
    _aten.batch_norm_backward_reduce.default: _batch_norm_backward_reduce,
    _aten.batch_norm_backward_elemt.default: _like_input,
    _aten._ctc_loss.Tensor: _ctc_loss,
    _aten._embedding_bag.default: _embedding_bag,
    _aten._embedding_bag_forward_only.default: _embedding_bag,
    _aten._ctc_loss_backward.Tensor: _ctc_loss_backward,
    _aten.histc.default: _histc,
    _aten.native_layer_norm.default: _native_layer_norm,
    _aten.native_batch_norm.default: _native_batch_norm,
}

_ATTENTION = {
    getattr(_aten, name).default
    for name in (
        "_scaled_dot_product_efficient_attention",
        "_scaled_dot_product_flash_attention",
    )
    if hasattr(_aten, name)
}
_CUDNN_ATTENTION = getattr(getattr(_aten, "_scaled_dot_product_cudnn_attention", None), "default", None)


_FOLLOWED_BY_RULES = {
    _aten.convolution.default,
    _aten.convolution_backward.default,
    _aten.embedding_dense_backward.default,
    _aten._embedding_bag_backward.default,
    _aten.nonzero.default,
}


def on_gpu(func, result):
    """Returns the results of an op that are on the GPU; attention's seed and offset are not. The results of a
    convolution are recorded one by one, each between its copies and its workspace (convolution.py), those of an
    embedding after its sort (kernels.py). cuDNN's attention has seed and offset on the GPU, before its results.
    """
    if func in _FOLLOWED_BY_RULES:
        return []
    if func is _aten.native_dropout.default:  # the mask comes first
        return result[::-1]
    if func in (_aten._embedding_bag.default, _aten._embedding_bag_forward_only.default):
        return [result[2], result[1], result[0], result[3]]
    if func is _CUDNN_ATTENTION:
        return [*result[6:8], *result[:2]]
    if func in _ATTENTION:
        return [
            value
            for value in result
            if not (
                isinstance(value, torch.Tensor)
                and value.numel() <= 2
                and not value.is_floating_point()
            )
        ]
    return result


_FILLS = {
    "zero_",
    "fill_",
    "normal_",
    "uniform_",
    "bernoulli_",
    "random_",
    "exponential_",
    "log_normal_",
    "cauchy_",
    "geometric_",
}


@functools.lru_cache(maxsize=None)
def only_overwrites(func):
    """Returns true if an op fills its first argument, or overwrites the lists of an optimizer."""
    name = func._schema.name.partition("::")[2]
    return name in _FILLS or (
        name.startswith("_foreach_") and func._schema.is_mutable and not func._schema.returns
    )


_ON_ONE_DEVICE = {
    "addmm",
    "addmv",
    "baddbmm",
    "bmm",
    "convolution",
    "embedding",
    "mm",
    "native_batch_norm",
    "native_group_norm",
    "native_layer_norm",
    "nll_loss2d_forward",
    "nll_loss_forward",
}


@functools.lru_cache(maxsize=None)
def wants_one_device(func):
    """Returns true if an op with weights refuses tensors on several devices. Other ops refuse them too, but PyTorch's
    own C++ code gives them tensors that it has created on the CPU from the fake ones.
    """
    return func._schema.name.partition("::")[2] in _ON_ONE_DEVICE
