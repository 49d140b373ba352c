"""Replaces the GPU that a traced program uses: torch.cuda, devices of tensors, copies, values.

All changes to PyTorch are made by `install` and undone by the ExitStack that it is given. PyTorch is unchanged while no
trace runs.
"""

import logging

import torch

from . import checkpoints, cuda, distributed, graphs, lazy, lbfgs, libraries, maths, nested, parameters, profiling
from . import streams, tensors, training, types
from .patch import patch


def install(tracer, stack):
    cuda.install(tracer, stack)
    streams.install(tracer, stack)
    tensors.install(tracer, stack)
    checkpoints.install(tracer, stack)
    training.install(tracer, stack)
    distributed.install(tracer, stack)
    graphs.install(tracer, stack)
    maths.install(stack)
    lazy.install(stack)
    lbfgs.install(stack)
    parameters.install(stack)
    types.install(tracer, stack)
    profiling.install(stack)
    libraries.install(tracer, stack)
    tracer.compiled.install(stack)
    nested.install(tracer, stack)
    # PyTorch logs the stack of each op that fails on fake tensors; the error has all of it.
    patch(stack, logging.getLogger("torch._subclasses.fake_tensor"), "disabled", True)
