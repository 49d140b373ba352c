"""Headroom in PyTorch: `trace` predicts a program's allocations without a GPU, `use` replaces PyTorch's allocator.

import headroom.torch
headroom.torch.trace(make_step, batch=16, device="rtx-3090").save("run.trace")

headroom.torch.use("mapped")        # before anything is allocated on a GPU
print(headroom.torch.statistics())
"""

from .allocator import statistics, use

__all__ = ["Trace", "TraceError", "statistics", "trace", "use"]


def __getattr__(name):
    """The tracer is imported when it is used: it needs parts of PyTorch that load slowly."""
    if name in ("Trace", "trace"):
        from . import session

        return getattr(session, name)
    if name == "TraceError":
        from .errors import TraceError

        return TraceError
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
