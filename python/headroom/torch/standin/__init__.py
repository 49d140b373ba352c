"""Stands in for the GPU that a traced program talks to: torch.cuda, devices of tensors, copies, values.

All changes to PyTorch are made by `install` and undone by the ExitStack that it is given. Nothing is
changed while no trace runs.
"""

import logging

import torch

from ..errors import refusal
from . import cuda, distributed, maths, tensors, training
from .patch import patch


def install(tracer, stack):
    cuda.install(tracer, stack)
    tensors.install(tracer, stack)
    training.install(tracer, stack)
    distributed.install(stack)
    maths.install(stack)
    _refuse_compile(stack)
    # PyTorch logs the stack of each op that fails on fake tensors; the error has all of it.
    patch(stack, logging.getLogger("torch._subclasses.fake_tensor"), "disabled", True)


def _refuse_compile(stack):
    def refuse(*args, **kwargs):
        raise refusal(
            "torch.compile cannot be traced: which buffers its kernels take is decided when they are "
            "compiled for a real GPU; trace the program without it (an upper bound for most models)"
        )

    patch(stack, torch, "compile", refuse)
    patch(stack, torch.nn.Module, "compile", refuse)
