"""Ops that autograd runs in place on a GPU, on a tensor that nothing else refers to. For subclasses of tensors and
under a dispatch mode it takes the form that makes a new result (can_accumulate_inplace in input_buffer.cpp,
areAnyTensorSubclassLike in FunctionsManual.cpp and TensorAdvancedIndexing.cpp of PyTorch 2.4 to 2.11), which would
take the memory of the tensor twice.
"""

import functools

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from .child import in_child

_aten = torch.ops.aten

# The ops that a formula calls on a tensor that it has made itself: zeros, or the first of its results.
_OF_FORMULAS = {
    _aten.index_add.default: _aten.index_add_.default,
    _aten.index_put.default: _aten.index_put_.default,
    _aten.masked_scatter.default: _aten.masked_scatter_.default,
    _aten.put.default: _aten.put_.default,
    _aten.scatter.src: _aten.scatter_.src,
    _aten.scatter_add.default: _aten.scatter_add_.default,
}
_OF_FORMULA = {
    ("BinaryCrossEntropyWithLogitsBackward", _aten.sub.Tensor): _aten.sub_.Tensor,
    ("BinaryCrossEntropyWithLogitsBackward", _aten.mul.Tensor): _aten.mul_.Tensor,
    ("Atan2Backward", _aten.masked_fill.Scalar): _aten.masked_fill_.Scalar,
}


def reference_counts(tensor):
    """References to a tensor and to its storage, as seen from a dispatch mode."""
    return tensor._use_count(), torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)


def is_dense(tensor):
    """Returns true if the elements fill their memory without gaps and overlaps, in any order."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.size())):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True


class _Counter(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is _aten.add.Tensor:
            self.counts = reference_counts(args[0])
        return func(*args, **(kwargs or {}))


_unshared_counts = []


def unshared_counts():
    """reference_counts of a gradient that only autograd has; found out by a sum of two gradients."""
    if not _unshared_counts:
        _unshared_counts.append(_count_unshared())
    return _unshared_counts[0]


def find_unshared_counts_in_child():
    """Finds unshared_counts() out in another process: where there is a GPU, a process that has run a backward pass
    cannot fork others that do.
    """
    if not _unshared_counts:
        _unshared_counts.append(tuple(in_child(_count_unshared)))


def _count_unshared():
    counter = _Counter()
    with torch.enable_grad(), FakeTensorMode(), counter:
        value = torch.zeros(2, requires_grad=True) * 1
        total = value.exp() + value.sin()
        counter.counts = None
        torch.autograd.backward((total,), (torch.ones(2),))
    return counter.counts


def form_of(func, args, kwargs, node, recorder):
    """The form of an op that a GPU would run for the autograd node. With gradients on, it is most likely one of the
    program's forward pass, which a checkpoint runs again.
    """
    if node is None or torch.is_grad_enabled():
        return func
    if func is _aten.add.Tensor:
        return _aten.add_.Tensor if _is_sum(args, kwargs, node, recorder) else func
    in_place = _OF_FORMULAS.get(func) or _OF_FORMULA.get((_kind(node.name()), func))
    if in_place is None or isinstance(node, torch.autograd.function.BackwardCFunction):
        return func
    block = recorder.find(args[0])
    return func if block is None or block.node != recorder.node else in_place


@functools.lru_cache(maxsize=None)
def _kind(name):
    """Returns its name without the number of the overload: "IndexBackward" of "IndexBackward0"."""
    return name.rstrip("0123456789")


def _is_sum(args, kwargs, node, recorder):
    """Returns true if an addition is autograd's sum of two gradients of one value, which overwrites the first if it has
    no other reference. A backward formula adds gradients that its own node has made.
    """
    first, second = args[0], args[1]
    if kwargs or not isinstance(second, torch.Tensor):
        return False
    if first.dtype != second.dtype or first.size() != second.size():
        return False
    block = recorder.find(first)
    if block is None:
        return False
    if block.node == recorder.node:
        inputs = [function for function, _ in node.next_functions if function is not None]
        if len(set(inputs)) == len(inputs):
            return False
    return reference_counts(first) == unshared_counts() and is_dense(first)
