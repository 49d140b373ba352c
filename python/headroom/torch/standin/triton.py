"""Kernels that a program has written in Triton: they take no memory of PyTorch, and what they write is unknown."""

import torch

from .patch import patch

# do_bench() clears the cache of the GPU with a buffer of this size before it times a configuration of a kernel.
_BENCHMARK_BYTES = 256 << 20


def kernels(tracer, stack):
    """Returns the hooks of Triton's modules."""
    timed = set()

    def launch(kernel, *args, **kwargs):
        for value in (*args, *kwargs.values()):
            if isinstance(value, torch.Tensor):
                tracer.values.forget(value)

    def jit(module):
        patch(stack, module.JITFunction, "run", launch)

    def autotuner(module):
        kind = module.Autotuner

        def run(tuner, *args, **kwargs):
            if len(tuner.configs) > 1 and id(tuner) not in timed:
                timed.add(id(tuner))
                tracer.temporaries("triton::do_bench", [_BENCHMARK_BYTES])
            launch(tuner, *args, **kwargs)

        patch(stack, kind, "run", run)

    return {"triton.runtime.jit": jit, "triton.runtime.autotuner": autotuner}
