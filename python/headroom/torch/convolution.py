"""Convolutions as PyTorch gives them to cuDNN: dense copies, results, workspaces, in PyTorch's order.

conv_workspace.py says how large a workspace is. docs/notes/pytorch-memory.md compares the results
with recorded trainings.
"""

import torch
from torch._prims_common import suggest_memory_format

from . import reduction
from .conv_workspace import FILTER, FORWARD, INPUT, Convolution


def _memory_format(tensor, weight):
    """cudnn_conv_suggest_memory_format in ConvUtils.h: channels last if one of the two is."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    last = formats.get(tensor.dim())
    if last is not None and last in (suggest_memory_format(tensor), suggest_memory_format(weight)):
        return last
    return torch.contiguous_format


def _copies(tracer, name, layout, *tensors):
    """cuDNN gets dense tensors: PyTorch copies those that are not."""
    sizes = [
        t.numel() * t.element_size() for t in tensors if not t.is_contiguous(memory_format=layout)
    ]
    return tracer.held(name, sizes)


def _is_depthwise(tensor, layout, transposed, groups):
    """Returns true if PyTorch's own kernels compute it, which use no workspace (use_cudnn_depthwise)."""
    is_depthwise = not transposed and tensor.dim() > 3 and groups == tensor.size(1) and groups > 1
    return is_depthwise and layout == torch.contiguous_format


class _Call:
    """One convolution: its layout, and the workspaces of its parts."""

    def __init__(
        self, tracer, name, tensor, weight, out, stride, padding, dilation, transposed, groups
    ):
        self.tracer, self.name = tracer, name
        self.layout = _memory_format(tensor, weight)
        self.is_own = _is_depthwise(tensor, self.layout, transposed, groups)
        self.transposed = transposed
        if transposed:  # the gradient of a convolution from its output to its input
            tensor, out = out, tensor
        self.convolution = Convolution(
            tensor.dtype,
            tensor.size(),
            weight.size(),
            out.size(),
            tuple(stride),
            tuple(padding),
            tuple(dilation),
            groups,
            self.layout != torch.contiguous_format,
        )

    def take(self, part):
        if self.is_own:
            return
        if self.transposed and part != FILTER:
            part = INPUT if part == FORWARD else FORWARD
        workspaces = self.tracer.workspaces
        with self.tracer.held(self.name, [workspaces.bytes_of(self.convolution, part)]) as blocks:
            for block in blocks:
                block.tensor = workspaces.name_of(self.convolution, part)


def forward(tracer, func, args, kwargs, result):
    tensor, weight, _, stride, padding, dilation, transposed, _, groups = args[:9]
    name = func.name()
    call = _Call(
        tracer, name, tensor, weight, result, stride, padding, dilation, transposed, groups
    )
    # PyTorch copies the input, then makes the output, then copies the filter (cudnn_convolution).
    with _copies(tracer, name, call.layout, tensor):
        tracer.track(result, name)
        with _copies(tracer, name, call.layout, weight):
            call.take(FORWARD)


def backward(tracer, func, args, kwargs, result):
    """The gradient of the input, that of the weight, that of the bias, in PyTorch's order."""
    gradient, tensor, weight, _, stride, padding, dilation, transposed, _, groups = args[:10]
    name = func.name()
    call = _Call(
        tracer, name, tensor, weight, gradient, stride, padding, dilation, transposed, groups
    )
    if call.is_own:  # the gradient of the filter first (conv_depthwise2d_backward_cuda_out)
        for gradient_of in (result[1], result[0]):
            if gradient_of is not None:
                tracer.track(gradient_of, name)
    # Dense copies of the input and of the gradient serve both parts (cudnn_convolution_backward).
    dense = [gradient] if result[1] is None else [tensor, gradient]
    with _copies(tracer, name, call.layout, *dense):
        if result[0] is not None:
            tracer.track(result[0], name)
            with _copies(tracer, name, call.layout, weight):
                call.take(INPUT)
        if result[1] is not None:
            tracer.track(result[1], name)
            call.take(FILTER)
    if result[2] is not None:
        tracer.track(result[2], name)
        dims = [dim for dim in range(gradient.dim()) if dim != 1]
        tracer.temporaries(name, reduction.of_sum(tracer.gpu, gradient, dims))
