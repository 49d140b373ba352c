"""Memory of an op's GPU kernels beyond its results: temporaries and libraries' workspaces.

One function for each kind of op; docs/notes/pytorch-memory.md has the source and the measurement of each.
"""

import contextlib
import math

import torch

from . import convolution, fourier, gpu_ops, losses, reduction
from .recorder import WORKSPACE

_aten = torch.ops.aten


def take(tracer, func, args, kwargs, result):
    """Records what an op takes once its results have their memory."""
    rule = _RULES.get(func)
    if rule is not None:
        rule(tracer, func, args, kwargs, result)


# Kernels that read rows as they lie in memory: PyTorch copies tensors that are not contiguous first, and frees
# the copies when the op has its results (expect_contiguous and contiguous in layer_norm_kernel.cu,
# group_norm.cpp).
_CONTIGUOUS = {
    _aten.native_layer_norm.default: (0,),
    _aten.native_layer_norm_backward.default: (0, 1),
    _aten.native_group_norm.default: (0,),
    _aten.native_group_norm_backward.default: (0, 1),
}


def before_results(tracer, func, args, kwargs):
    """Holds what an op makes before its results have their memory: dense copies, indices of masks, losses, numbers."""
    if func in _MASKED:
        return _indices_of_masks(tracer, func.name(), args[1])
    if func in losses.BEFORE:
        return losses.BEFORE[func](tracer, func, args, kwargs)
    if func is _aten.new_empty_strided.default and _comes_from_a_view(args[0]):
        tracer.recorder.move(args[0].untyped_storage(), "aten::new_zeros")
    if func is _aten.where.self:  # numbers, which become tensors on the GPU (TensorCompare.cpp)
        numbers = [tensor for tensor in args if tensor.dim() == 0 and not tracer.is_on_gpu(tensor)]
        return tracer.held(func.name(), [tensor.element_size() for tensor in numbers])
    positions = _CONTIGUOUS.get(func)
    if positions is None:
        return contextlib.nullcontext()
    copied = [args[i] for i in positions if not args[i].is_contiguous()]
    return tracer.held(func.name(), [t.numel() * t.element_size() for t in copied])


def _comes_from_a_view(gradient):
    """Returns true for the gradient of a view that was changed in place: a GPU's went through AsStridedBackward, which
    puts it into zeros; that of a fake tensor goes through the view's own formula.
    """
    node = torch._C._current_autograd_node()
    return node is not None and node.name().endswith("CopySlices") and gradient._is_view()


# Masks, which become indices (expandTensors in IndexingUtils.h).

_MASKED = {_aten.index.Tensor, _aten.masked_select.default}


def _masks_in(indices):
    indices = [indices] if isinstance(indices, torch.Tensor) else indices
    return [i for i in indices if i is not None and i.dtype in (torch.bool, torch.uint8)]


@contextlib.contextmanager
def _indices_of_masks(tracer, name, indices):
    """The results of nonzero() while the body runs, each after its count and with a list of tiles for its choice."""
    masks = _masks_in(indices)
    with contextlib.ExitStack() as stack:
        for mask in masks:
            with tracer.held(name, [4]):
                tracer.temporaries(name, [_COUNT_BYTES])
                count = tracer.values.count_of(mask)
                stack.enter_context(tracer.held(name, [count * mask.dim() * 8]))
                tracer.temporaries(name, [_tiles(mask)])
        yield


_COUNT_BYTES = 1024
_TILE = 1024  # elements that a thread block of cub::DeviceSelect chooses from


def _tiles(mask):
    return (mask.numel() // _TILE + 1) * 16 + _COUNT_BYTES


def _nonzero(tracer, func, args, kwargs, result):
    """Its count and the sum that gives it; the result; what the choice takes (Nonzero.cu)."""
    name = func.name()
    with tracer.held(name, [4]):
        tracer.temporaries(name, [_COUNT_BYTES])
        tracer.track(result, name)
        tracer.temporaries(name, [_tiles(args[0])])


# cuBLAS. PyTorch gives each thread's handle a workspace at its first use; cuBLASLt has one of 1 MiB.

_LT_WORKSPACE_BYTES = 1 << 20


def _blas(tracer, func, args, kwargs, result):
    tracer.library_workspace("cuBLAS", tracer.gpu.blas_workspace_bytes)


def _addmm(tracer, func, args, kwargs, result):
    _blas(tracer, func, args, kwargs, result)
    # addmm with a row as its bias goes to cuBLASLt, which adds it in its epilogue.
    bias, left, right = args[:3]
    if (
        bias.dim() == 1
        and bias.is_contiguous()
        and left.dim() == 2
        and right.size(1) > 1
        and bias.size(0) == right.size(1)
        and kwargs.get("beta", 1) == 1
    ):
        tracer.library_workspace("cuBLASLt", _LT_WORKSPACE_BYTES)


# Reductions.


def _reduce(tracer, func, args, kwargs, result):
    tensor = args[0]
    dims = args[1] if len(args) > 1 else kwargs.get("dim")
    if isinstance(dims, int):
        dims = [dims]
    tracer.temporaries(func.name(), reduction.of_sum(tracer.gpu, tensor, dims))


def _reduce_norm(tracer, func, args, kwargs, result):
    dims = args[2] if len(args) > 2 else kwargs.get("dim")
    tracer.temporaries(func.name(), reduction.of_sum(tracer.gpu, args[0], dims))


def _reduce_variance(tracer, func, args, kwargs, result):
    dims = args[1] if len(args) > 1 else kwargs.get("dim")
    # Welford's state: mean, sum of squares, counts.
    tracer.temporaries(func.name(), reduction.of_sum(tracer.gpu, args[0], dims, 16))


def _norms(tracer, func, args, kwargs, result):
    """A number for each 65,536 elements, and for each tensor as many as for the largest (ForeachReduceOp.cu)."""
    chunks = max((-(-tensor.numel() // 65536) for tensor in args[0]), default=0)
    tracer.temporaries(func.name(), [len(args[0]) * chunks * 4])


def _nll_loss(tracer, func, args, kwargs, result):
    """Classes that do not lie in order, as those of one step of a sequence, are copied (NLLLoss.cu)."""
    classes = args[2 if "backward" in func.name() else 1]
    tracer.temporaries(func.name(), [0 if classes.is_contiguous() else classes.numel() * classes.element_size()])


# Embeddings.

_ROWS_PER_THREAD = 10
_SORT_BYTES, _SCAN_BYTES = 16895, 1279  # what CUB takes beside 16.25 bytes for each key; for a scan


def _embedding_backward(tracer, func, args, kwargs, result):
    """The order of embedding_dense_backward_cuda: a dense gradient, the sort, the result, the sums."""
    gradient, indices, rows = args[0], args[1], args[2]
    name = func.name()
    count = indices.numel()
    copy = 0 if gradient.is_contiguous() else gradient.numel() * gradient.element_size()
    with tracer.held(name, [copy]):
        if count <= 3072:  # one kernel without sorting
            tracer.track(result, name)
            return
        keys = count * 8
        with tracer.held(name, [keys, keys]):
            tracer.temporaries(name, [keys, _SORT_BYTES + count * 65 // 4])
            tracer.track(result, name)
            segments = min(count, rows) + count // _ROWS_PER_THREAD
            width = -(-gradient.size(-1) // 32) * 32
            sums = segments * width * (4 if gradient.element_size() <= 4 else 8)
            with tracer.held(name, [keys, 8]):
                tracer.temporaries(name, [keys, _SCAN_BYTES])
                with tracer.held(name, [keys, keys]):
                    tracer.temporaries(name, [_SCAN_BYTES])
                    tracer.temporaries(name, [8, segments * 8, sums])


def _embedding_bag_backward(tracer, func, args, kwargs, result):
    """Dense gradients of sums and means are those of a plain embedding (embedding_bag_backward_cuda_sum_avg)."""
    if args[8] == 2:  # the largest
        return tracer.track(result, func.name())
    _embedding_backward(tracer, func, [args[0], args[1], args[6]], {}, result)


def _index_put(tracer, func, args, kwargs, result):
    """With accumulate the indices are sorted: their keys and values, twice, and what the sort takes. A mask with one
    number becomes no indices (canDispatchToMaskedFill).
    """
    accumulate = args[3] if len(args) > 3 else kwargs.get("accumulate", False)
    indices = [index for index in args[1] if index is not None]
    masks = _masks_in(indices)
    values = args[2]
    if not accumulate:
        if masks and not (len(indices) == 1 and values.numel() == 1):
            with _indices_of_masks(tracer, func.name(), masks):
                pass
        return
    with _indices_of_masks(tracer, func.name(), masks):
        _put_sorted(tracer, func, indices, values)


def _put_sorted(tracer, func, indices, values):
    shapes = [
        (tracer.values.count_of(index),) if _masks_in([index]) else tuple(index.size())
        for index in indices
    ]
    keys = math.prod(torch.broadcast_shapes(*shapes)) * 8
    shape = torch.broadcast_shapes(*shapes)
    expanded = math.prod(shape) * values.element_size()
    expanded = expanded if values.numel() * values.element_size() < expanded else 0
    tracer.temporaries(func.name(), [keys, keys, keys, keys, keys // 2, expanded])


# Attention.


def _round_up(n, multiple):
    return -(-n // multiple) * multiple


def _efficient_backward(tracer, func, args, kwargs, result):
    query = args[1]
    batch, heads, length, width = query.size()
    out = args[5]
    name = func.name()
    delta = batch * heads * length * 4
    # The sum of output * gradient over each head, made contiguous.
    product = tracer.recorder.allocate(out.numel() * 4, name, WORKSPACE)
    row_sums = tracer.recorder.allocate(delta, name, WORKSPACE)
    contiguous = tracer.recorder.allocate(delta, name, WORKSPACE)
    tracer.recorder.free(row_sums)
    tracer.recorder.free(product)
    keys = args[2].size(2)
    workspace = batch * heads * (_round_up(length, 64) * _round_up(width, 32) * 4 + 128)
    if query.dtype != torch.float32 or width > 128:
        workspace += 2 * batch * heads * _round_up(keys, 64) * _round_up(width, 32) * 4
    with tracer.held(name, [workspace]):
        tracer.recorder.free(contiguous)


def _flash_backward(tracer, func, args, kwargs, result):
    query = args[1]
    batch, heads, length, width = query.size()
    rows = _round_up(length, 128)
    width = _round_up(width, 32)
    sums = batch * heads * rows * 4
    tracer.temporaries(func.name(), [sums, batch * rows * heads * width * 4])


def _cudnn_forward(tracer, func, args, kwargs, result):
    tracer.temporaries(func.name(), [256])


def _cudnn_backward(tracer, func, args, kwargs, result):
    """Sums of rows and the gradient of the queries in float32; where heads share keys, these heads' own gradients."""
    query, key, value = args[1:4]
    batch, heads, length, width = query.size()
    workspace = batch * heads * length * 4 * (1 + width) + 256
    if key.size(1) < heads:
        workspace += batch * heads * key.size(2) * (width + value.size(-1)) * query.element_size()
    tracer.temporaries(func.name(), [workspace])


def _safe_softmax(tracer, func, args, kwargs, result):
    """Rows that are masked as a whole become zero: where the scores are -inf, for which rows, and a zero."""
    rows = result.numel() // max(result.size(-1), 1)
    tracer.temporaries(func.name(), [result.numel(), rows, 4])


def _softmax(tracer, func, args, kwargs, result):
    """Dense copies of tensors that are not contiguous, after the product of gradient and output (SoftMax.cu)."""
    product = args[:1] if func is _aten._softmax_backward_data.default else []
    tensors = [tensor for tensor in args[:2] if isinstance(tensor, torch.Tensor)]
    taken = [*product, *(tensor for tensor in tensors if not tensor.is_contiguous())]
    tracer.temporaries(func.name(), [tensor.numel() * tensor.element_size() for tensor in taken])


# Scans and sorts.


def _sort(tracer, func, args, kwargs, result):
    tensor = args[0]
    tracer.temporaries(func.name(), [tensor.numel() * (tensor.element_size() + 8)])


_RULES = {
    **fourier.RULES,
    **losses.AFTER,
    **dict.fromkeys(gpu_ops.PRODUCTS_OF_TYPE, _blas),
    _aten.mm.default: _blas,
    _aten.bmm.default: _blas,
    _aten.baddbmm.default: _blas,
    _aten.addmm.default: _addmm,
    _aten.mv.default: _blas,
    _aten.addmv.default: _blas,
    _aten.dot.default: _blas,
    _aten.vdot.default: _blas,
    _aten.convolution.default: convolution.forward,
    _aten.convolution_backward.default: convolution.backward,
    _aten.sum.dim_IntList: _reduce,
    _aten.sum.default: lambda tracer, func, args, kwargs, result: _reduce(
        tracer, func, args[:1], {}, result
    ),
    _aten.mean.dim: _reduce,
    _aten.mean.default: lambda tracer, func, args, kwargs, result: _reduce(
        tracer, func, args[:1], {}, result
    ),
    _aten.amax.default: _reduce,
    _aten.amin.default: _reduce,
    _aten.linalg_vector_norm.default: _reduce_norm,
    _aten._foreach_norm.Scalar: _norms,
    _aten.nll_loss_forward.default: _nll_loss,
    _aten.nll_loss_backward.default: _nll_loss,
    _aten.std.correction: _reduce_variance,
    _aten.std_mean.correction: _reduce_variance,
    _aten.var.correction: _reduce_variance,
    _aten.var_mean.correction: _reduce_variance,
    _aten.embedding_dense_backward.default: _embedding_backward,
    _aten._embedding_bag_backward.default: _embedding_bag_backward,
    _aten.index_put.default: _index_put,
    _aten.index_put_.default: _index_put,
    _aten.nonzero.default: _nonzero,
    _aten._softmax.default: _softmax,
    _aten._log_softmax.default: _softmax,
    _aten._softmax_backward_data.default: _softmax,
    _aten._log_softmax_backward_data.default: _softmax,
    _aten._scaled_dot_product_efficient_attention_backward.default: _efficient_backward,
    _aten._scaled_dot_product_flash_attention_backward.default: _flash_backward,
    _aten.sort.default: _sort,
    _aten.sort.stable: _sort,
    _aten.argsort.stable: _sort,
}
for _op in (_aten.mm, _aten.bmm, _aten.baddbmm, _aten.addmm, _aten.mv, _aten.addmv, _aten.dot):
    _RULES[_op.out] = _RULES[_op.default]  # compiled code has the results of products already
if hasattr(_aten, "_safe_softmax"):
    _RULES[_aten._safe_softmax.default] = _safe_softmax
if hasattr(_aten, "_scaled_dot_product_cudnn_attention_backward"):
    _RULES[_aten._scaled_dot_product_cudnn_attention.default] = _cudnn_forward
    _RULES[_aten._scaled_dot_product_cudnn_attention_backward.default] = _cudnn_backward
