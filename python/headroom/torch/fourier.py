"""Memory of Fourier transforms beyond their results, in the order of SpectralOps.cpp: dense copies and cuFFT's workspace."""

import torch

_aten = torch.ops.aten
_MOST_DIMS = 3  # of one plan (cufft_max_ndim)


def r2c(tracer, func, args, kwargs, result):
    """The spectrum of real numbers: its result, then one plan, or a plan for the last axis and others."""
    tensor, dims = args[0], args[1]
    name = func.name()
    if _is_one_plan(dims):
        _execute(tracer, name, tensor, dims, result, tensor)
        return
    _execute(tracer, name, tensor, dims[-1:], result, tensor)
    with tracer.held(name, [_bytes(result)] if len(dims) > 1 else []):
        for count in _parts(len(dims) - 1):
            _execute(tracer, name, result, dims[:count], result, tensor)


def c2r(tracer, func, args, kwargs, result):
    """Real numbers of a spectrum, which the plan may overwrite: of a copy."""
    tensor, dims = args[0], args[1]
    name = func.name()
    with tracer.held(name, [_bytes(tensor)]):
        dense = torch.empty(tensor.size(), dtype=tensor.dtype, device="meta")
        if not _is_one_plan(dims):
            if len(dims) > 1:
                _transform(tracer, name, tensor, dims[:-1])
            dims = dims[-1:]
        _execute(tracer, name, dense, dims, tensor, result)


def c2c(tracer, func, args, kwargs, result):
    if args[1]:
        _transform(tracer, func.name(), args[0], args[1])


def _transform(tracer, name, tensor, dims):
    parts = _parts(len(dims))
    with tracer.held(name, [_bytes(tensor)] if len(parts) > 1 else []):
        for count in parts:
            _execute(tracer, name, tensor, dims[:count], tensor, tensor)


def _execute(tracer, name, tensor, dims, spectrum, lengths):
    """One plan (_exec_fft): a copy of what has no single axis of batches, and the workspace. `lengths`: the tensor with the
    extents that are transformed.
    """
    copy = 0 if _is_one_batch(tensor, dims) else _bytes(tensor)
    sizes = [lengths.size(dim) for dim in dims]
    tracer.temporaries(name, [copy, _workspace(spectrum, sizes)])


def _is_one_plan(dims):
    return len(dims) <= _MOST_DIMS and list(dims[:2]) != [0, 1]


def _parts(dims):
    """The numbers of axes that the plans of so many axes transform."""
    return [min(_MOST_DIMS, dims - done) for done in range(0, dims, _MOST_DIMS)]


def _is_one_batch(tensor, dims):
    """Returns true if the axes that are not transformed are one axis without a copy."""
    dims = {dim % tensor.dim() for dim in dims}
    batch = [
        (tensor.stride(i), tensor.size(i))
        for i in range(tensor.dim())
        if i not in dims and tensor.size(i) != 1
    ]
    batch.sort(reverse=True)
    return all(outer[0] == inner[0] * inner[1] for outer, inner in zip(batch, batch[1:]))


def _bytes(tensor):
    return tensor.numel() * tensor.element_size()


def _workspace(tensor, sizes):
    """cuFFT's work area: the spectrum once, twice if a length has a prime factor above 7 (measured with 265 = 5 * 53, where
    a training reserved 2,132 MiB; the single size is NVIDIA's rule for lengths of small factors and was not measured).
    """
    return _bytes(tensor) * (1 if all(map(_has_small_factors, sizes)) else 2)


def _has_small_factors(length):
    for factor in (2, 3, 5, 7):
        while length > 1 and length % factor == 0:
            length //= factor
    return length <= 1


RULES = {
    _aten._fft_r2c.default: r2c,
    _aten._fft_c2r.default: c2r,
    _aten._fft_c2c.default: c2c,
}
