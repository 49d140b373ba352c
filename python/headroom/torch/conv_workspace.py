"""The workspaces of convolutions in cuDNN, as its heuristics choose engines without benchmarking.

If PyTorch has cuDNN, cuDNN itself answers (cudnn.py), except for 1x1 convolutions: on a device it may compute these as
matrix products over the tensors in place, with kernels that it does not name without a device. `size_of_1x1` decides,
from recorded trainings. If PyTorch is built without cuDNN, rules estimate all workspaces:

Tensor cores read channels last. For tensors in PyTorch's usual order cuDNN takes copies of the
input, the output and the filter in that order, with channels padded to what a tensor core loads at
once. The gradient of a filter is summed up in parts, as many as fill the multiprocessors.
"""

import math
from dataclasses import dataclass

import torch

from . import cudnn

FORWARD, INPUT, FILTER = cudnn.FORWARD, cudnn.INPUT_GRADIENT, cudnn.WEIGHT_GRADIENT

_SMALL = 400  # bytes; parameters of a kernel
_HEADER = 16
_PARTS_OF_DEPTHWISE = 8  # of the gradient of a filter, for each image


@dataclass(frozen=True)
class Convolution:
    """A convolution as cuDNN sees it; of a transposed one, that whose gradient it is."""

    dtype: torch.dtype
    input: tuple  # sizes
    weight: tuple
    output: tuple
    stride: tuple
    padding: tuple
    dilation: tuple
    groups: int
    is_channels_last: bool

    @property
    def element(self):
        return self.dtype.itemsize

    @property
    def unit(self):
        """Elements that a tensor core loads at once."""
        return 16 // self.element

    @property
    def images(self):
        return self.input[0]

    @property
    def channels(self):
        return self.input[1]

    @property
    def filters(self):
        return self.output[1]

    @property
    def pixels(self):
        return math.prod(self.input[2:])

    @property
    def taps(self):
        return math.prod(self.weight[2:])

    @property
    def weights(self):
        return math.prod(self.weight)

    @property
    def is_half_depthwise(self):
        """Depthwise in half precision; in PyTorch's usual order it does not get to cuDNN."""
        is_depthwise = self.groups == self.channels == self.filters and self.groups > 1
        return is_depthwise and self.is_channels_last and self.element < 4

    @property
    def is_plain_1x1(self):
        return (
            self.taps == 1
            and self.groups == 1
            and not self.is_channels_last
            and all(step == 1 for step in self.stride)
            and not any(self.padding)
            and self.element <= 4
        )


def parts_bytes(convolution):
    """One float32 gradient of the filter for each image."""
    return convolution.images * convolution.weights * 4


class Workspaces:
    """The workspaces on one GPU."""

    def __init__(self, gpu):
        self._gpu = gpu
        self._heuristics = cudnn.Heuristics(gpu)
        self._named = {}

    def name_of(self, convolution, part):
        """What a trace calls it; a convolution goes on with another engine alone, whatever others take."""
        size, *smaller = self.choices_of(convolution, part)
        number = self._named.setdefault((convolution, part), len(self._named) + 1)
        return f"workspace of {size} for convolution {number}, else {', '.join(map(str, smaller))}"

    def bytes_of(self, convolution, part):
        """The workspace of the convolution (FORWARD), of its gradient for the input or for the filter."""
        return self.choices_of(convolution, part)[0]

    def choices_of(self, convolution, part):
        """That workspace, and the smaller ones of the engines that PyTorch tries where it finds no room."""
        if convolution.is_half_depthwise:
            # cuDNN has kernels for it that it names only where a driver is loaded.
            return _falling([_PARTS_OF_DEPTHWISE * parts_bytes(convolution)] if part is FILTER else [])
        if convolution.is_plain_1x1 and convolution.pixels == 1 and part is FILTER:
            return [0]  # one matrix product over all images
        sizes = self._ask(convolution, part) or [_estimate(self._gpu, convolution, part)]
        is_filter_in_3d = part is FILTER and len(convolution.input) > 4  # cuDNN names its engine
        if convolution.is_plain_1x1 and not is_filter_in_3d:
            sizes = [size_of_1x1(convolution, part, sizes[0]), *sizes]
        return _falling(sizes)

    def _ask(self, convolution, part):
        tensors = tuple(
            _planes(sizes, convolution.is_channels_last)
            for sizes in (convolution.input, convolution.weight, convolution.output)
        )
        stride, padding, dilation = convolution.stride, convolution.padding, convolution.dilation
        if len(stride) == 1:
            stride, padding, dilation = (1, *stride), (0, *padding), (1, *dilation)
        return self._heuristics.workspaces_bytes(
            part, convolution.dtype, tensors, stride, padding, dilation
        )


def _falling(sizes):
    """Each that is smaller than all before, to the end of the list: cuDNN's last engines take next to nothing."""
    falling = []
    for size in [*sizes, 0]:
        if not falling or size < falling[-1]:
            falling.append(size)
    return falling


def _planes(sizes, is_channels_last):
    """(sizes, strides) of a dense tensor; one of one dimension is a plane of height 1 to cuDNN."""
    if len(sizes) == 3:
        sizes = (sizes[0], sizes[1], 1, sizes[2])
    order = [0, *range(2, len(sizes)), 1] if is_channels_last else range(len(sizes))
    strides, step = [0] * len(sizes), 1
    for dim in reversed(order):
        strides[dim] = step
        step *= sizes[dim]
    return tuple(sizes), tuple(strides)


# When a 1x1 convolution is a matrix product over the tensors as they lie: bounds that separate the
# recorded cases on an H200 (docs/notes/pytorch-memory.md).
_LARGE_WEIGHT = 1 << 20  # elements; cuDNN takes copies for most of such filters
_MEDIUM_WEIGHT = 3 << 16
_LONG_SIDE = 1024
_FEW_PIXELS = 64
_FEW_CHANNELS, _NARROW, _MANY_PIXELS = 32, 64, 56 * 56
_LONG_SUM = 6000
_TILE, _PROCESSORS = 128, 132
_WORTH_COPIES = 5


def size_of_1x1(convolution, part, other_bytes):
    """The workspace of a plain 1x1 convolution that takes `other_bytes` when it is no product."""
    if not _is_product(convolution, part, other_bytes):
        return other_bytes
    return parts_bytes(convolution) if part is FILTER else _SMALL


def _is_product(convolution, part, other_bytes):
    channels, filters = convolution.channels, convolution.filters
    pixels, weights = convolution.pixels, convolution.weights
    is_half = convolution.element < 4
    if part is FORWARD:
        if is_half and pixels % 4 != 0:
            return False
        many = pixels > (4 * _FEW_PIXELS if is_half else _FEW_PIXELS)
        return weights < _LARGE_WEIGHT or (weights < 2 * _LARGE_WEIGHT and many)
    if part is INPUT:
        if weights >= _LARGE_WEIGHT:
            is_square = min(channels, filters) >= _LONG_SIDE
            is_small = is_half and pixels <= _FEW_PIXELS
            return is_square and (is_small or weights < 2 * _LARGE_WEIGHT)
        if is_half:
            return pixels % 4 == 0 or channels <= filters
        return pixels > _FEW_PIXELS or weights < _MEDIUM_WEIGHT
    return _is_product_of_filter(convolution, other_bytes, is_half)


def _is_product_of_filter(convolution, other_bytes, is_half):
    """For the gradient of a filter, a product for each image."""
    channels, filters = convolution.channels, convolution.filters
    pixels, weights = convolution.pixels, convolution.weights
    parts = parts_bytes(convolution)
    tiles = convolution.images * -(-channels // _TILE) * -(-filters // _TILE)
    if weights >= _LARGE_WEIGHT and pixels <= _FEW_PIXELS:
        return False
    if is_half and pixels % 4 != 0:
        return parts <= _WORTH_COPIES * other_bytes
    if pixels % convolution.unit != 0:
        if parts <= other_bytes:
            return True
        if is_half:
            return channels >= 4 * filters
        return tiles >= _PROCESSORS and weights < _MEDIUM_WEIGHT
    if is_half:
        return True
    if channels <= _FEW_CHANNELS:
        return 2 * tiles > _PROCESSORS
    if max(channels, filters) <= _NARROW and pixels > _MANY_PIXELS:
        return False
    is_long = convolution.images * pixels >= _LONG_SUM and channels >= filters
    return parts <= other_bytes or not is_long or weights < _LARGE_WEIGHT // 2


# Estimates for builds without cuDNN.

_SPLITS_OF_LONG, _LONG = 18, 64  # a filter's matrix with 64 columns for each row is split 18 times


def _estimate(gpu, convolution, part):
    is_depthwise = convolution.groups == convolution.channels and convolution.groups > 1
    if is_depthwise or convolution.element > 4 or convolution.is_channels_last:
        return 0
    odd = convolution.channels % convolution.unit or convolution.filters % convolution.unit
    if convolution.element < 4 and convolution.taps == 1 and odd:
        return _SMALL  # kernels without copies
    if part is FILTER:
        return _copies(convolution, _pad) + _sums_of_filters(gpu, convolution) + _HEADER
    weights = convolution.weights * convolution.element if convolution.taps > 1 else 0
    return _copies(convolution, lambda n, unit: n) + weights + _HEADER


def _pad(channels, unit):
    return -(-channels // unit) * unit


def _copies(convolution, pad):
    channels = pad(convolution.channels, convolution.unit) * convolution.pixels
    filters = pad(convolution.filters, convolution.unit) * math.prod(convolution.output[2:])
    return convolution.images * (channels + filters) * convolution.element


def _sums_of_filters(gpu, convolution):
    """Parts of the gradient of a filter: tiles of its matrix that leave multiprocessors idle are split."""
    filters, unit = convolution.filters, convolution.unit
    if convolution.taps == 1 and filters % unit == 0 and filters > 64:
        return 0
    rows, columns = filters, convolution.channels // convolution.groups * convolution.taps
    height = 64 if rows <= 64 else 128
    width = 64 if rows <= 128 else 128
    tiles = convolution.groups * -(-rows // height) * -(-columns // width)
    weight = _pad(filters, unit) * _pad(convolution.channels // convolution.groups, unit)
    weight *= convolution.taps
    if convolution.element < 4:
        splits = 2 * gpu.processors // tiles
        return weight * convolution.element if splits <= 1 else splits * weight * 4
    splits = _SPLITS_OF_LONG if columns >= _LONG * rows else -(-gpu.processors // tiles)
    rest = tiles % gpu.processors if tiles > gpu.processors else 0
    return splits * weight * 4 + rest * 2 * height * width * 4
