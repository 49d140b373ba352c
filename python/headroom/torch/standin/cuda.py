"""torch.cuda and torch.accelerator as on one GPU that has done all work already. Where a launcher has started ranks, the
machine has a GPU for each.
"""

import dataclasses
import os
import sys
import types

import torch

from ..cpu_ops import plain_torch
from ..errors import refusal
from .patch import patch, patch_all

# Functions of torch.accelerator with the same names in torch.cuda.
_OF_ACCELERATORS = (
    "is_available",
    "device_count",
    "synchronize",
    "empty_cache",
    "memory_allocated",
    "memory_reserved",
    "max_memory_allocated",
    "max_memory_reserved",
    "reset_peak_memory_stats",
    "reset_accumulated_memory_stats",
    "memory_stats",
)


class OneDevice:
    """torch.cuda.device, and the guards of a device: there is one."""

    def __init__(self, *args, **kwargs):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False


class _AnyGenerator(type):
    def __instancecheck__(cls, value):
        return isinstance(value, _Generator)


_Generator = torch.Generator


def _generators(tracer):
    """torch.Generator, whose numbers come from the CPU also where it is made for the GPU."""

    class Generator(_Generator, metaclass=_AnyGenerator):
        def __new__(cls, device="cpu"):
            self = _Generator.__new__(cls, "cpu")
            named = torch.device(device)
            self.place = tracer.gpu.device if named.type == "cuda" and named.index is None else named
            return self

        device = property(lambda self: self.place)

    return Generator


def _is_capturing():
    """SyncBatchNorm leaves the ranks out that have no batch, but in a capture, where it does not look at their sizes: the
    ranks of a trace have one.
    """
    return sys._getframe(1).f_code.co_filename == torch.nn.modules._functions.__file__


class _Graph:
    """torch.cuda.CUDAGraph and torch.cuda.graph; a class, as libraries name them in annotations."""

    def __init__(self, *args, **kwargs):
        _refuse_graphs()


def _refuse_graphs(*args, **kwargs):
    raise refusal(
        "CUDA graphs cannot be traced: their memory is a pool of their own; trace the program without them"
    )


def install(tracer, stack):
    gpu = tracer.gpu
    recorder = tracer.recorder
    properties = types.SimpleNamespace(
        name=gpu.title,
        major=gpu.capability[0],
        minor=gpu.capability[1],
        total_memory=gpu.total_bytes,
        multi_processor_count=gpu.processors,
        max_threads_per_multi_processor=gpu.threads,
        warp_size=32,
        is_integrated=0,
        is_multi_gpu_board=0,
        gcnArchName="",
        L2_cache_size=gpu.cache_bytes,
        regs_per_multiprocessor=65536,
        shared_memory_per_block=49152,
    )

    def statistics(*_, **__):
        stats = {}
        for kind in ("allocated_bytes", "requested_bytes", "active_bytes", "reserved_bytes"):
            stats[f"{kind}.all.current"] = recorder.live_bytes
            stats[f"{kind}.all.peak"] = recorder.peak_bytes
        stats["num_alloc_retries"] = stats["num_ooms"] = 0
        return stats

    def reset_peak(*_, **__):
        recorder.peak_bytes = recorder.live_bytes

    def set_device(device):
        index = device if isinstance(device, int) else torch.device(device).index
        if index is not None and index >= 0:
            tracer.gpu = dataclasses.replace(tracer.gpu, index=index)

    def device_count():
        return int(os.environ.get("LOCAL_WORLD_SIZE", 1))

    def rng_state(*_, **__):
        """A seed and an offset of eight bytes each."""
        with plain_torch():
            return torch.zeros(16, dtype=torch.uint8, device="cpu")

    values = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": device_count,
        "current_device": lambda: tracer.gpu.index,
        "_lazy_init": lambda: None,
        "init": lambda: None,
        "get_device_name": lambda *_, **__: gpu.title,
        "get_device_capability": lambda *_, **__: gpu.capability,
        "get_device_properties": lambda *_, **__: properties,
        "set_device": set_device,
        "is_bf16_supported": lambda *_, **__: gpu.capability >= (8, 0),
        "is_current_stream_capturing": _is_capturing,
        "synchronize": lambda *_, **__: None,
        "empty_cache": recorder.empty_cache,
        "ipc_collect": lambda: None,
        "memory_allocated": lambda *_, **__: recorder.live_bytes,
        "memory_reserved": lambda *_, **__: recorder.live_bytes,
        "max_memory_allocated": lambda *_, **__: recorder.peak_bytes,
        "max_memory_reserved": lambda *_, **__: recorder.peak_bytes,
        "reset_peak_memory_stats": reset_peak,
        "reset_max_memory_allocated": reset_peak,
        "reset_accumulated_memory_stats": lambda *_, **__: None,
        "memory_stats": statistics,
        "memory_summary": lambda *_, **__: "",
        "set_per_process_memory_fraction": lambda *_, **__: None,
        "mem_get_info": lambda *_, **__: (gpu.total_bytes - recorder.live_bytes, gpu.total_bytes),
        "device": OneDevice,
        "device_of": OneDevice,
        "manual_seed": lambda *_, **__: None,
        "manual_seed_all": lambda *_, **__: None,
        "seed": lambda: None,
        "seed_all": lambda: None,
        "initial_seed": lambda: 0,
        "get_rng_state": rng_state,
        "set_rng_state": lambda *_, **__: None,
        "get_rng_state_all": lambda: [rng_state() for _ in range(device_count())],
        "set_rng_state_all": lambda *_, **__: None,
        "CUDAGraph": _Graph,
        "graph": _Graph,
        "make_graphed_callables": _refuse_graphs,
        "get_arch_list": lambda: [f"sm_{gpu.capability[0]}{gpu.capability[1]}"],
        **dict.fromkeys(("utilization", "memory_usage", "temperature", "power_draw", "clock_rate"), lambda *_, **__: 0),
        "can_device_access_peer": lambda *_, **__: True,
        "list_gpu_processes": lambda *_, **__: "",
    }
    patch_all(stack, torch.cuda, values)
    # Programs call some of them by the module that torch.cuda has them from.
    patch_all(
        stack,
        torch.cuda.memory,
        {
            **values,
            "_record_memory_history": lambda *_, **__: None,
            "_dump_snapshot": lambda *_, **__: None,
        },
    )
    patch(stack, torch, "Generator", _generators(tracer))
    patch(stack, torch.cuda, "default_generators", (torch.Generator("cuda"),))
    patch_all(stack, torch._C, {"_get_accelerator": lambda *_, **__: tracer.gpu.device})
    if hasattr(torch, "accelerator"):
        patch_all(
            stack,
            torch.accelerator,
            {
                **{name: values[name] for name in _OF_ACCELERATORS},
                "current_accelerator": lambda *_, **__: torch.device(tracer.gpu.device.type),
                "device_index": OneDevice,
                "current_device_index": lambda: tracer.gpu.index,
                "set_device_index": set_device,
                "get_memory_info": values["mem_get_info"],
            },
        )
    if hasattr(torch.cuda, "nvtx"):
        patch_all(
            stack,
            torch.cuda.nvtx,
            dict.fromkeys(("range_push", "range_pop", "mark"), lambda *_, **__: None),
        )
