"""Replaces the GPU that a traced program uses: torch.cuda, devices of tensors, copies, values.

All changes to PyTorch are made by `install` and undone by the ExitStack that it is given. PyTorch is unchanged while no
trace runs.
"""

import logging
import sys

import torch

from ..errors import refusal
from ..recorder import is_user_file
from . import cuda, distributed, lazy, maths, tensors, training
from .patch import patch, patch_all


def install(tracer, stack):
    cuda.install(tracer, stack)
    tensors.install(tracer, stack)
    training.install(tracer, stack)
    distributed.install(stack)
    maths.install(stack)
    lazy.install(stack)
    _refuse_compile(stack)
    _refuse_nested_tensors(stack)
    # PyTorch logs the stack of each op that fails on fake tensors; the error has all of it.
    patch(stack, logging.getLogger("torch._subclasses.fake_tensor"), "disabled", True)


def _refuse_compile(stack):
    def refuse(*args, **kwargs):
        caller = sys._getframe(1).f_code
        name = "torch.compile"
        instead = "trace the program without it"
        if not is_user_file(caller.co_filename):
            name = f"{caller.co_name}(), which calls torch.compile,"
        if caller.co_name == "flex_attention":
            instead = "trace the program with F.scaled_dot_product_attention and a mask"
        raise refusal(
            f"{name} cannot be traced: which buffers its kernels take is decided when they are "
            f"compiled for a real GPU; {instead} (an upper bound for most models)"
        )

    patch(stack, torch, "compile", refuse)
    patch(stack, torch.nn.Module, "compile", refuse)


def _refuse_nested_tensors(stack):
    def refuse(*args, **kwargs):
        raise refusal(
            "nested tensors cannot be traced: their sizes depend on data; use padded ones and a mask"
        )

    makers = [name for name in torch.nested.__all__ if "nested_tensor" in name]
    patch_all(stack, torch.nested, dict.fromkeys(makers, refuse))
    # An encoder makes some of a batch whose padding stands at the ends; it takes the batch as it is instead.
    patch(stack, torch, "_nested_tensor_from_mask_left_aligned", lambda *_: False)
