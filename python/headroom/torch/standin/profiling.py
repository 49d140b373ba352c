"""PyTorch's profilers, which would time the tracer's own work: they record nothing."""

import torch.autograd.profiler
import torch.profiler
from torch.autograd.profiler_util import EventList

from .patch import patch_all

_NOTHING = ("prepare_trace", "start_trace", "stop_trace", "add_metadata", "add_metadata_json", "preset_metadata_json")
_WRITERS = ("export_chrome_trace", "export_stacks", "export_memory_timeline", "_export_memory_profile")


def install(stack):
    nothing = dict.fromkeys((*_NOTHING, *_WRITERS), lambda *_, **__: None)
    no_events = dict.fromkeys(("events", "key_averages"), lambda *_, **__: EventList([]))
    patch_all(stack, torch.profiler.profiler._KinetoProfile, {**nothing, **no_events})
    old = {
        "__enter__": lambda profiler: profiler,
        "__exit__": lambda profiler, *_: False,
        "total_average": lambda profiler: EventList([]).total_average(),
        **{name: nothing[name] for name in _WRITERS},
        **no_events,
    }
    patch_all(stack, torch.autograd.profiler.profile, old)
