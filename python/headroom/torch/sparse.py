"""Sparse tensors in coordinates (COO), and in rows or columns (CSR, CSC). On a GPU their indices and values are tensors of
the trace, and each op takes what its kernel in SparseCUDATensorMath.cu, SparseCUDATensor.cu or SparseBlasImpl.cpp takes,
without the workspace of cuSPARSE; other ops are refused. On the CPU those of data are real.
"""

import torch
from torch.utils._pytree import tree_map

from .cpu_ops import plain_torch
from .errors import refusal

_aten = torch.ops.aten
_COMPRESSED = {torch.sparse_csr: ("crow_indices", "col_indices"), torch.sparse_csc: ("ccol_indices", "row_indices")}


def is_sparse_op(func, args, inputs):
    """Returns true for an op that takes or makes a sparse tensor."""
    if "sparse" in func._schema.name or any(tensor.layout is not torch.strided for tensor in inputs):
        return True
    return func is _aten._embedding_bag_backward.default and args[9]


def parts_of(tensors):
    """The tensors whose storages say where sparse ones are: those of data are on the CPU."""
    return [tensor for tensor in tensors if tensor.layout is torch.strided]


def run(tracer, func, args, kwargs, on_gpu):
    """Runs an op of no SparseTensor that takes or makes a sparse tensor."""
    if func is _aten._sparse_coo_tensor_with_dims_and_tensors.default and on_gpu:
        return SparseTensor(tracer, args[3], args[4], args[2], kwargs.get("is_coalesced") or False)
    if func is _aten._to_copy.default and on_gpu and args[0].layout is torch.sparse_coo:
        parts = (tracer.copy_to(part, tracer.gpu.device) for part in (args[0]._indices(), args[0]._values()))
        return SparseTensor(tracer, *parts, args[0].shape, args[0].is_coalesced())
    if func is _aten._to_copy.default and on_gpu and args[0].layout in _COMPRESSED:
        parts = [getattr(args[0], name)() for name in (*_COMPRESSED[args[0].layout], "values")]
        parts = [tracer.copy_to(part, tracer.gpu.device) for part in parts]
        return CompressedTensor(tracer, *parts, args[0].shape, args[0].layout)
    if func is _aten.sparse_compressed_tensor.comp_plain_value_size and on_gpu and kwargs["layout"] in _COMPRESSED:
        return CompressedTensor(tracer, *args, kwargs["layout"])
    if func is _aten._to_sparse_csr.default and on_gpu:
        return _in_rows(run(tracer, _aten._to_sparse.default, args[:1], {}, True))
    if func in (_aten._to_sparse.default, _aten._to_sparse.sparse_dim) and on_gpu:
        places = args[0].nonzero().t()
        return SparseTensor(tracer, places.contiguous(), args[0][tuple(places)], args[0].shape, True)
    if func is _aten._embedding_bag_backward.default and on_gpu:
        gradient, indices, _, bags = args[:4]
        values, weights = gradient.index_select(0, bags), args[10]
        if weights is not None:
            values.mul_(weights.unsqueeze(1))
        return SparseTensor(tracer, indices.reshape(1, -1), values, (args[6], gradient.shape[-1]), False)
    if on_gpu:
        raise _refused(func)

    def real(value):
        return tracer.values.ask(value, func.name()) if isinstance(value, torch.Tensor) else value

    args, kwargs = tree_map(real, args), tree_map(real, kwargs)
    with plain_torch():
        return func(*args, **kwargs)


def _refused(func):
    name = func._schema.name.partition("::")[2].strip("_")
    return refusal(
        f"{name}() of a sparse tensor cannot be traced: what its kernel takes is not known; use a dense one (sparse=False)"
    )


class _Parts(torch.Tensor):
    """A tensor of others, on the GPU of a tracer: indices, and values."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    def __init__(self, *_):
        pass

    def __repr__(self):
        return f"sparse tensor of {tuple(self.shape)} with {len(self.entries)} values"

    device = property(lambda self: self.entries.device)
    is_cuda = property(lambda self: self.entries.is_cuda)
    is_cpu = property(lambda self: self.entries.is_cpu)
    data = property(lambda self: self.detach())

    def cuda(self, *_, **__):
        return self

    def unknown(self, made):
        """A tensor that a kernel fills with values which a trace does not know."""
        self.tracer.values.forget(made)
        return made

    def follows(self, made, *others):
        """A tensor that a kernel fills with the product of this one and a dense one, which may be added to another, or
        with this one's own elements.
        """
        function = _multiply if others else _spread
        self.tracer.values.give(function, [*self.inner(), list(self.shape), *others], [made])
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        rule = cls.rules.get(func)
        if rule is not None:
            return rule(*args, **(kwargs or {}))
        made = func.decompose(*args, **(kwargs or {}))  # one that inference mode leaves whole
        if made is NotImplemented:
            raise _refused(func)
        return made


def _real(pointers, places, values, turned, shape):
    """A sparse tensor on the CPU, of coordinates or of rows; of columns where it is `turned`."""
    if pointers is not None:
        rows = torch.arange(len(pointers) - 1).repeat_interleave(pointers.diff().long())
        places = torch.stack((places, rows) if turned else (rows, places))
    return torch.sparse_coo_tensor(places, values, shape)


def _starts(rows, count):
    return torch.searchsorted(rows.contiguous(), torch.arange(count + 1))


def _spread(*parts):
    return _real(*parts).to_dense()


def _multiply(pointers, places, values, turned, shape, dense, bias=None):
    made = _real(pointers, places, values, turned, shape) @ dense
    return made if bias is None else made.add_(bias)


def _flops(_, places, *others, out_val):
    return 2 * places[-1] * out_val[1:].numel()


_multiply.flops = _flops


class SparseTensor(_Parts):
    """Indices of (dimensions, elements) and values of (elements, ...)."""

    @staticmethod
    def __new__(cls, tracer, indices, values, size, is_coalesced):
        self = torch.Tensor._make_wrapper_subclass(
            cls, size, dtype=values.dtype, layout=torch.sparse_coo, device="cpu", requires_grad=False
        )
        self.tracer, self.places, self.entries, self.coalesced = tracer, indices, values, is_coalesced
        return self

    def __tensor_flatten__(self):
        return ["places", "entries"], None

    def inner(self):
        return None, self.places, self.entries, 0

    def to(self, *args, **kwargs):
        return self.of(self.places, self.entries.to(*args, **kwargs))

    def of(self, indices, values, size=None, is_coalesced=None):
        """Another tensor with these parts, otherwise like this one."""
        if is_coalesced is None:
            is_coalesced = self.coalesced
        return SparseTensor(self.tracer, indices, values, size or self.shape, is_coalesced)


class CompressedTensor(_Parts):
    """The beginnings of rows, or of columns, with the columns or rows of the values."""

    @staticmethod
    def __new__(cls, tracer, pointers, places, values, size, layout):
        self = torch.Tensor._make_wrapper_subclass(
            cls, size, dtype=values.dtype, layout=layout, device="cpu", requires_grad=False, dispatch_layout=True
        )
        self.tracer, self.pointers, self.places, self.entries, self.kind = tracer, pointers, places, values, layout
        return self

    def __tensor_flatten__(self):
        return ["pointers", "places", "entries"], None

    def to(self, *args, **kwargs):
        return self.of(self.pointers, self.places, self.entries.to(*args, **kwargs))

    def of(self, *parts, size=None, layout=None):
        """Another tensor of these parts, otherwise like this one."""
        return CompressedTensor(self.tracer, *parts, size or self.shape, layout or self.kind)

    def parts(self):
        return self.pointers, self.places, self.entries

    def inner(self):
        return *self.parts(), int(self.kind is torch.sparse_csc)


def _in_rows(tensor, *_):
    """A tensor in coordinates by its rows; it shares the columns and the values."""
    tensor = _coalesce(tensor)
    pointers = tensor.places.new_empty(tensor.shape[0] + 1)
    tensor.tracer.values.give(_starts, [tensor.places[0], tensor.shape[0]], [pointers])
    return CompressedTensor(tensor.tracer, pointers, tensor.places[1], tensor.entries, tensor.shape, torch.sparse_csr)


def _turned(tensor, *_):
    other = torch.sparse_csc if tensor.kind is torch.sparse_csr else torch.sparse_csr
    return tensor.of(*tensor.parts(), size=tensor.shape[::-1], layout=other)


def _product_of_rows(tensor, dense, bias=None):
    """Added to zeros, where there is no bias. One in columns is brought into rows first."""
    if not isinstance(tensor, CompressedTensor) or isinstance(dense, _Parts):
        raise _refused(_aten.mm.default)
    shape = (tensor.shape[0], *dense.shape[1:])
    added = [] if bias is None else [bias]
    if bias is None or not tensor.tracer.is_on_gpu(bias):
        bias = dense.new_empty(shape)
    if tensor.kind is torch.sparse_csc:
        in_rows = tensor.places.new_empty(shape[0] + 1), *map(torch.empty_like, (tensor.places, tensor.entries))
        order = torch.empty_like(tensor.places)
        tensor.tracer.temporaries("sparse::to_sparse_csr", [2 * 8 * len(tensor.places)])
        del order
    else:
        in_rows = ()
    made = tensor.follows(dense.new_empty(shape), dense, *added)
    del in_rows  # held until the product is made
    return made


def _of_parts(function):
    return lambda tensor, *_, **__: tensor.of(*map(function, tensor.parts()))


def _of_rows(function):
    """A rule for an op of one tensor in rows and numbers, which is one of the values."""

    def rule(tensor, *args, **kwargs):
        if not isinstance(tensor, CompressedTensor) or any(isinstance(value, _Parts) for value in args):
            raise _refused(_aten.mul.Tensor)
        return tensor.of(tensor.pointers, tensor.places, function(tensor.entries, *args, **kwargs))

    return rule


_TURN = (_aten.t.default, _aten.transpose.int, _aten.numpy_T.default)
CompressedTensor.rules = {
    torch.ops.prim.layout.default: lambda tensor: tensor.kind,
    **dict.fromkeys((_aten.detach.default, _aten.alias.default), _of_parts(lambda part: part)),
    **dict.fromkeys(_TURN, _turned),
    **dict.fromkeys((_aten.crow_indices.default, _aten.ccol_indices.default), lambda tensor: tensor.pointers.detach()),
    **dict.fromkeys((_aten.col_indices.default, _aten.row_indices.default), lambda tensor: tensor.places.detach()),
    _aten.values.default: lambda tensor: tensor.entries.detach(),
    _aten._nnz.default: lambda tensor: len(tensor.entries),
    _aten.clone.default: _of_parts(torch.clone),
    _aten._to_copy.default: _of_rows(lambda entries, dtype=None, **_: entries.to(dtype or entries.dtype, copy=True)),
    _aten.mm.default: _product_of_rows,
    _aten.mv.default: _product_of_rows,
    _aten.addmm.default: lambda bias, tensor, dense, **_: _product_of_rows(tensor, dense, bias),
    _aten._sparse_addmm.default: lambda bias, tensor, dense, **_: _product_of_rows(tensor, dense, bias),
    _aten.mul.Tensor: _of_rows(torch.mul),
    _aten.mul.Scalar: _of_rows(torch.mul),
    _aten.div.Tensor: _of_rows(torch.div),
    _aten._to_dense.default: lambda tensor, *_, **__: tensor.follows(tensor.entries.new_empty(tensor.shape)),
}


def _coalesced(*parts):
    return torch.sparse_coo_tensor(*parts).coalesce().values()


def _coalesce(tensor):
    indices, values = tensor.places, tensor.entries
    dims, count = indices.shape
    if tensor.coalesced or count < 2:
        return tensor.of(indices, values, is_coalesced=True)
    flat = indices[0].clone() if dims == 1 else (indices * 2).sum(0)
    order, offsets = torch.empty_like(flat), torch.empty_like(flat)
    tensor.tracer.temporaries("sparse::coalesce", [2 * 8 * count])
    known = tensor.tracer.values.cheap(tensor.places)
    if known is not None:
        with plain_torch():
            known = torch.unique(known, dim=1)
    left = count if known is None else known.shape[1]
    made = values.new_empty((left, *values.shape[1:]))
    tensor.tracer.values.give(_coalesced, [indices, values, list(tensor.shape)], [made])
    del order, offsets
    places = tensor.unknown(flat[:left].view(1, left) if dims == 1 else indices.new_empty((dims, left)))
    if known is not None:
        places.copy_(known)
    return tensor.of(places, made, is_coalesced=True)


def _clone(tensor, **_):
    node = torch._C._current_autograd_node()
    if node is not None and node.name().endswith("AccumulateGrad"):
        return tensor.of(tensor.places, tensor.entries)  # on a GPU nothing else has the gradient
    return tensor.of(tensor.places.clone(), tensor.entries.clone())


def _transpose(tensor, *_):
    size = (*tensor.shape[1::-1], *tensor.shape[2:])
    places, values = tensor.places.clone(), tensor.entries.clone()
    rows = places[0].clone()
    places[0].copy_(places[1])
    places[1].copy_(rows)
    return tensor.of(places, values, size, False)


def _product(tensor, dense, bias=None):
    """Added to a bias, or to zeros; written by columns and copied (s_addmm_out_csr_sparse_dense_cuda_worker)."""
    if isinstance(tensor, SparseTensor) and isinstance(dense, SparseTensor) and bias is None:
        return _product_of_sparse(tensor, dense)
    if not isinstance(tensor, SparseTensor) or isinstance(dense, SparseTensor):
        raise _refused(_aten.mm.default)
    shape = (tensor.shape[0], *dense.shape[1:])
    added = [] if bias is None else [bias]
    if bias is None or not tensor.tracer.is_on_gpu(bias):  # zeros that C++ made
        bias = dense.new_empty(shape)
    made = tensor.follows(dense.new_empty(shape), dense, *added)
    tensor = _coalesce(tensor)
    pointers = made.new_empty(shape[0] + 1, dtype=torch.int32)
    tensor.places[0].to(torch.int32)  # the rows, which become the pointers
    columns = tensor.places[1].to(torch.int32)
    by_columns = torch.empty_like(made)
    del pointers, columns, by_columns
    return made


def _product_of_sparse(left, right):
    """By rows and columns of 32 bits, of which coordinates are made again (SparseMatMul.cu)."""
    real = [left.tracer.values.ask(tensor.places, "a product of sparse tensors") for tensor in (left, right)]
    with plain_torch():
        ones = [torch.sparse_coo_tensor(at, torch.ones(at.shape[1]), t.shape) for at, t in zip(real, (left, right))]
        places = torch.sparse.mm(*ones).coalesce().indices()
    left, right = _coalesce(left), _coalesce(right)
    rows, count = left.shape[0], places.shape[1]
    values = left.entries

    def in_rows(tensor, count):
        return [values.new_empty(size, dtype=torch.int32) for size in (tensor.shape[0] + 1, count)]

    read = [in_rows(tensor, tensor.places.shape[1]) for tensor in (left, right)]
    pointers, columns = in_rows(left, count)
    made = left.unknown(values.new_empty(count))
    del read
    found = left.places.new_empty((2, count))
    found.copy_(places)
    del pointers, columns
    return left.of(found, made, (rows, right.shape[1]), True)


def _added_product(bias, tensor, dense, **_):
    return _product(tensor, dense, bias)


def _dense(tensor, dtype=None, *_, **__):
    made = tensor.entries.new_zeros(tensor.shape, dtype=dtype)
    return tensor.follows(_add_to_dense(made, tensor))


def _add_to_dense(dense, tensor, alpha=1):
    if not tensor.coalesced:
        flat = tensor.places[0] if len(tensor.places) == 1 else (tensor.places * 2).sum(0)
        scaled = tensor.entries * 2 if alpha != 1 else tensor.entries
        del flat, scaled
    return tensor.unknown(dense)


def _add(left, right, alpha=1):
    if not isinstance(right, SparseTensor):
        left, right = right, left
    if isinstance(left, SparseTensor):
        places = torch.cat([left.places, right.places], 1)
        return left.of(places, torch.cat([left.entries, right.entries]), is_coalesced=False)
    return _add_to_dense(left.clone(), right, alpha)


def _add_in_place(left, right, alpha=1):
    if isinstance(left, SparseTensor):
        made = _add(left, right)
        left.places, left.entries, left.coalesced = made.places, made.entries, False
        return left
    return _add_to_dense(left, right, alpha)


def _of_values(function):
    """A rule for an op of one sparse tensor and numbers, which is one of the values."""

    def rule(tensor, *args, **kwargs):
        if not isinstance(tensor, SparseTensor) or any(isinstance(value, SparseTensor) for value in args):
            raise _refused(_aten.mul.Tensor)
        return tensor.of(tensor.places.clone(), function(tensor.entries, *args, **kwargs))

    return rule


def _in_values(function):
    def rule(tensor, *args, **kwargs):
        function(tensor.entries, *args, **kwargs)
        return tensor

    return rule


def _mask(dense, mask, **_):
    """The elements of a dense tensor at the places of a sparse one, times ones."""
    flat = mask.places[0] if len(mask.places) == 1 else (mask.places * 2).sum(0)
    chosen = mask.unknown(mask.entries.new_empty(mask.entries.shape, dtype=dense.dtype))
    del flat
    return mask.of(mask.places.clone(), chosen * 1)


def _copy(tensor, dtype=None, **_):
    return tensor.of(tensor.places.clone(), tensor.entries.to(dtype) if dtype else tensor.entries.clone())


SparseTensor.rules = {
    _aten.detach.default: lambda tensor: tensor.of(tensor.places, tensor.entries),
    _aten.alias.default: lambda tensor: tensor.of(tensor.places, tensor.entries),
    _aten.clone.default: _clone,
    _aten._to_copy.default: _copy,
    _aten._indices.default: lambda tensor: tensor.places.detach(),
    _aten._values.default: lambda tensor: tensor.entries.detach(),
    _aten.indices.default: lambda tensor: tensor.places.detach(),
    _aten.values.default: lambda tensor: tensor.entries.detach(),
    _aten._nnz.default: lambda tensor: len(tensor.entries),
    _aten.sparse_dim.default: lambda tensor: len(tensor.places),
    _aten.dense_dim.default: lambda tensor: tensor.entries.dim() - 1,
    _aten.is_coalesced.default: lambda tensor: tensor.coalesced,
    _aten._coalesce.default: _coalesce,
    _aten.t.default: _transpose,
    _aten.transpose.int: _transpose,
    _aten.mm.default: _product,
    _aten.mv.default: _product,
    _aten.addmm.default: _added_product,
    _aten._sparse_addmm.default: _added_product,
    _aten._sparse_sparse_matmul.default: _product_of_sparse,
    _aten._to_dense.default: _dense,
    _aten.add.Tensor: _add,
    _aten.add_.Tensor: _add_in_place,
    _aten.sparse_mask.default: _mask,
    _aten.mul.Tensor: _of_values(torch.mul),
    _aten.mul.Scalar: _of_values(torch.mul),
    _aten.div.Tensor: _of_values(torch.div),
    _aten.neg.default: _of_values(torch.neg),
    _aten.mul_.Tensor: _in_values(torch.Tensor.mul_),
    _aten.zero_.default: _in_values(torch.Tensor.zero_),
    _aten._to_sparse_csr.default: _in_rows,
}
