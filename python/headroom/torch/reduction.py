"""The buffers of PyTorch's reduction kernel, which splits long reductions between thread blocks.

A transcript of setReduceConfig in ATen/native/cuda/Reduce.cuh, compared with recordings of PyTorch 2.11: blocks
that share an output meet in a buffer in global memory, with one semaphore for each column of the grid.
"""

import math

import torch

_MAX_THREADS = 512
_WARP = 32


def _last_power_of_two(n):
    return 1 << (max(n, 1).bit_length() - 1)


def _divide_up(a, b):
    return -(-a // b)


def _dimensions(sizes, strides, reduced):
    """The dimensions of TensorIterator: reduced ones first, then by stride, joined where they are dense."""
    # The output's stride is 0 in reduced dimensions, so these come first; ties are broken by the input.
    output_strides = {}
    step = 1
    for index in reversed(range(len(sizes))):
        if index not in reduced:
            output_strides[index] = step
            step *= sizes[index]
    order = sorted(
        (
            (
                0 if index in reduced else 1,
                strides[index] if index in reduced else output_strides[index],
                strides[index],
                sizes[index],
                index in reduced,
            )
            for index in range(len(sizes))
            if sizes[index] != 1
        ),
        key=lambda row: (row[0], row[1]),
    )
    joined = []
    for _, output_stride, stride, size, is_reduced in order:
        if joined:
            last = joined[-1]
            dense = last[0] * last[1] == stride and last[2] == is_reduced
            if dense and (is_reduced or last[0] * last[3] == output_stride):
                last[0] *= size
                continue
        joined.append([size, stride, is_reduced, output_stride])
    return [(size, stride, is_reduced) for size, stride, is_reduced, _ in joined]


def buffers(gpu, sizes, strides, element_bytes, reduced, accumulator_bytes=4):
    """(bytes of the buffer, bytes of the semaphores) for reducing dimensions of a tensor; () without any."""
    dims = _dimensions(sizes, strides, reduced)
    if math.prod(sizes) == 0 or not dims:
        return ()
    # Tensors beyond 32-bit indexing are split in two, again and again; each part reduces on its own.
    while math.prod(dim[0] for dim in dims) * element_bytes >= 1 << 31:
        largest = max(range(len(dims)), key=lambda i: dims[i][0] * dims[i][1])
        size, stride, is_reduced = dims[largest]
        dims[largest] = (size // 2, stride, is_reduced)
    return _configure(gpu, dims, element_bytes, accumulator_bytes)


def _configure(gpu, dims, element_bytes, accumulator_bytes):
    inputs = math.prod(size for size, _, is_reduced in dims if is_reduced)
    outputs = math.prod(size for size, _, is_reduced in dims if not is_reduced)
    reduced_count = sum(1 for dim in dims if dim[2])
    fastest_is_reduced = reduced_count == len(dims) or (
        reduced_count > 0 and dims[0][1] < dims[reduced_count][1]
    )
    if reduced_count == 0:
        return ()
    if fastest_is_reduced:
        dim0, dim1, stride = inputs, outputs, dims[0][1]
    else:
        dim0, dim1, stride = outputs, inputs, dims[reduced_count][1]

    output_vector = 1
    if stride == 1:
        if fastest_is_reduced and dim0 >= 128 and reduced_count == 1:
            dim0 //= 4
        elif not fastest_is_reduced:
            output_vector = 4
            while output_vector > 1 and dims[reduced_count][0] % output_vector != 0:
                output_vector //= 2
            for index, dim in enumerate(dims):
                if index != reduced_count:
                    while output_vector > 1 and dim[1] % output_vector != 0:
                        output_vector //= 2
            dim0 //= output_vector

    max_threads = _MAX_THREADS // output_vector
    dim0_power = _last_power_of_two(dim0) if dim0 < max_threads else max_threads
    dim1_power = _last_power_of_two(dim1) if dim1 < max_threads else max_threads
    width = min(dim0_power, _WARP)
    height = min(dim1_power, max_threads // width)
    width = min(dim0_power, max_threads // height)
    threads = width * height

    step_input = step_output = 1
    block_x_reduce = fastest_is_reduced
    if block_x_reduce:
        step_input *= width
    else:
        step_output *= width
    block_y_reduce = _divide_up(inputs, step_input) >= min(height * 16, 256)
    if block_y_reduce:
        step_input *= height
    else:
        step_output *= height

    grid = _divide_up(outputs // output_vector, step_output)
    target = gpu.processors * (gpu.threads // threads)
    values = _divide_up(inputs, step_input)
    if not (block_y_reduce and values >= 256 and grid <= target):
        return ()
    blocks = max(min(_divide_up(target, grid), _divide_up(values, 16)), _divide_up(values, 256))
    if blocks <= 1:
        return ()
    size = accumulator_bytes * outputs * blocks
    if not block_x_reduce:
        size *= width * output_vector
    return size, 4 * grid


def of_sum(gpu, tensor, dims, accumulator_bytes=None):
    """The buffers for a sum, mean or norm of a tensor over some dimensions; all without any."""
    rank = tensor.dim()
    reduced = {dim % rank for dim in dims} if dims and rank else set(range(rank))
    bytes_each = tensor.element_size()
    if accumulator_bytes is None:
        accumulator_bytes = (
            4 if tensor.dtype in (torch.float16, torch.bfloat16) else max(bytes_each, 4)
        )
    return buffers(
        gpu, tuple(tensor.size()), tuple(tensor.stride()), bytes_each, reduced, accumulator_bytes
    )
