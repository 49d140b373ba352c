"""cuDNN's workspaces for convolutions, as its heuristics choose engines without benchmarking.

Tensor cores read channels last. For tensors in PyTorch's usual order cuDNN takes copies of the input, the
output and the filter in that order, with channels padded to what a tensor core loads at once; only 1x1
convolutions over a multiple of it run on the tensors as they lie. The gradient of a filter is summed up in
parts: one for each image in that last case, otherwise as many as fill the multiprocessors.

docs/notes/pytorch-memory.md compares these rules with the workspaces of recorded trainings.
"""

import math

import torch

from . import reduction

_SMALL = 400  # bytes; parameters of a kernel
_HEADER = 16
# Of an image, for a product over tensors as they lie.
_FEWEST_PIXELS = 128
_MOST_PIXELS_OF_NARROW = 56 * 56
_WIDE = 2048  # channels from which the gradient of the input takes copies
_LONG = 64  # a filter's matrix with that many columns for each row is split as often as
_SPLITS_OF_LONG = 18  # this


class _Shape:
    """A convolution as cuDNN sees it; of a transposed one, that whose gradient it is."""

    def __init__(self, gpu, tensor, weight, out, stride, transposed, groups):
        self.gpu = gpu
        if transposed:
            tensor, out = out, tensor
        self.element = tensor.element_size()
        self.unit = 16 // self.element
        self.images = tensor.size(0)
        self.channels, self.filters = tensor.size(1), out.size(1)
        self.pixels_in, self.pixels_out = math.prod(tensor.shape[2:]), math.prod(out.shape[2:])
        self.taps = math.prod(weight.shape[2:])
        self.weight = weight.numel()
        self.groups = groups
        self.is_strided = any(step != 1 for step in stride)
        self.is_last = _is_channels_last(tensor)
        # PyTorch's own kernels serve depthwise convolutions; double precision has no tensor cores.
        self.is_depthwise = groups == self.channels and groups > 1
        self.has_copies = not self.is_depthwise and self.element <= 4 and not self.is_last

    @property
    def is_direct(self):
        """Whether a matrix product over the tensors as they lie computes it."""
        is_narrow = (
            max(self.channels, self.filters) <= 64 and self.pixels_in > _MOST_PIXELS_OF_NARROW
        )
        return (
            self.taps == 1
            and not self.is_strided
            and self.pixels_in % self.unit == 0
            and self.channels % self.unit == 0
            and self.pixels_in >= _FEWEST_PIXELS
            and not is_narrow
        )

    @property
    def is_odd(self):
        """Half precision with channels that fill no load: cuDNN has kernels without copies for 1x1."""
        odd = self.channels % self.unit != 0 or self.filters % self.unit != 0
        return self.element < 4 and self.taps == 1 and odd

    def _padded(self, channels):
        return -(-channels // self.unit) * self.unit

    def copies(self, padded=False):
        channels = self._padded(self.channels) if padded else self.channels
        filters = self._padded(self.filters) if padded else self.filters
        return self.images * (channels * self.pixels_in + filters * self.pixels_out) * self.element

    def forward_bytes(self):
        if not self.has_copies:
            return 0
        if self.is_direct or self.is_odd:
            return _SMALL
        return self.copies() + (self.weight * self.element if self.taps > 1 else 0) + _HEADER

    def input_bytes(self):
        """For the gradient of the input."""
        if not self.has_copies:
            return 0
        is_wide = max(self.channels, self.filters) >= _WIDE
        if self.is_odd or (self.is_direct and not is_wide):
            return _SMALL
        return self.copies() + (self.weight * self.element if self.taps > 1 else 0) + _HEADER

    def filter_bytes(self):
        if not self.has_copies:
            return 0
        if self.is_odd:
            return _SMALL
        if self.is_direct:
            return self.images * self.weight * 4
        return self.copies(padded=True) + self._sums_of_filters() + _HEADER

    def _sums_of_filters(self):
        """Parts of the gradient of a filter: tiles of its matrix that leave multiprocessors idle are split."""
        if self.taps == 1 and self.filters % self.unit == 0 and self.filters > 64:
            return 0
        rows, columns = self.filters, self.channels // self.groups * self.taps
        height = 64 if rows <= 64 else 128
        width = 64 if rows <= 128 else 128
        tiles = self.groups * -(-rows // height) * -(-columns // width)
        processors = self.gpu.processors
        weight = (
            self._padded(self.filters) * self._padded(self.channels // self.groups) * self.taps
        )
        if self.element < 4:
            splits = 2 * processors // tiles
            return weight * self.element if splits <= 1 else splits * weight * 4
        splits = _SPLITS_OF_LONG if columns >= _LONG * rows else -(-processors // tiles)
        rest = tiles % processors if tiles > processors else 0
        return splits * weight * 4 + rest * 2 * height * width * 4


def _is_channels_last(tensor):
    if tensor.dim() == 4:
        return (
            tensor.is_contiguous(memory_format=torch.channels_last)
            and tensor.size(1) > 1
            and not tensor.is_contiguous()
        )
    if tensor.dim() == 5:
        return (
            tensor.is_contiguous(memory_format=torch.channels_last_3d)
            and tensor.size(1) > 1
            and not tensor.is_contiguous()
        )
    return False


def _contiguous_copies(tracer, name, *tensors):
    """cuDNN gets dense tensors: PyTorch copies those that are not."""
    sizes = [
        t.numel() * t.element_size()
        for t in tensors
        if not (t.is_contiguous() or _is_channels_last(t))
    ]
    return tracer.held(name, sizes)


def forward(tracer, func, args, kwargs, result):
    tensor, weight, _, stride = args[:4]
    transposed, groups = args[6], args[8]
    name = func.name()
    with _contiguous_copies(tracer, name, tensor, weight):
        shape = _Shape(tracer.gpu, tensor, weight, result, stride, transposed, groups)
        tracer.temporaries(name, [shape.input_bytes() if transposed else shape.forward_bytes()])


def backward(tracer, func, args, kwargs, result):
    """The gradient of the input, that of the weight, that of the bias, in PyTorch's order."""
    gradient, tensor, weight, _, stride = args[:5]
    transposed, groups = args[7], args[9]
    shape = _Shape(tracer.gpu, tensor, weight, gradient, stride, transposed, groups)
    name = func.name()
    with _contiguous_copies(tracer, name, gradient, tensor, weight):
        if result[0] is not None:
            tracer.track(result[0], name)
            tracer.temporaries(
                name, [shape.forward_bytes() if transposed else shape.input_bytes()]
            )
        if result[1] is not None:
            tracer.track(result[1], name)
            tracer.temporaries(name, [shape.filter_bytes()])
    if result[2] is not None:
        tracer.track(result[2], name)
        dims = [dim for dim in range(gradient.dim()) if dim != 1]
        tracer.temporaries(name, reduction.of_sum(tracer.gpu, gradient, dims))
