"""Headroom's memory strategies in PyTorch. Before anything is allocated on a GPU:

    import headroom.torch
    headroom.torch.use("mapped")        # or any other strategy, such as "caching+limit=4GiB"

The library libheadroom_torch.so is looked for beside this file, or where HEADROOM_TORCH_LIBRARY
says.
"""

import ctypes
import json
import os
import warnings

import torch

_library = None


def use(strategy=None):
    """Makes the strategy PyTorch's allocator; without one, HEADROOM_STRATEGY says which, or "mapped".

    torch.cuda.memory_stats() and the functions that read it answer with the strategy's counts.
    """
    global _library
    if strategy is not None:
        os.environ["HEADROOM_STRATEGY"] = strategy
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libheadroom_torch.so")
    path = os.environ.get("HEADROOM_TORCH_LIBRARY", beside)
    if not os.path.exists(path):
        raise FileNotFoundError(
            f"{path}: no such file; install Headroom where the CUDA toolkit is, or set "
            "HEADROOM_TORCH_LIBRARY"
        )
    allocator = torch.cuda.memory.CUDAPluggableAllocator(path, "headroom_malloc", "headroom_free")
    _library = ctypes.CDLL(path)
    inner = allocator.allocator()
    # Hooks that older versions of PyTorch lack: without them record_stream and empty_cache do
    # nothing, and graphs have no private pools.
    hooks = {
        "set_record_stream_fn": "headroom_record_stream",
        "set_reset_fn": "headroom_empty_cache",
        "set_memory_fraction_fn": "headroom_memory_fraction",
        "set_begin_allocate_to_pool": "headroom_begin_allocate_to_pool",
        "set_end_allocate_to_pool_fn": "headroom_end_allocate_to_pool",
        "set_release_pool": "headroom_release_pool",
    }
    for setter, function in hooks.items():
        if hasattr(inner, setter):
            getattr(inner, setter)(ctypes.cast(getattr(_library, function), ctypes.c_void_p).value)
    torch.cuda.memory.change_current_allocator(allocator)
    _answer_for_pytorch()
    return allocator


def statistics(device=0):
    """Returns the statistics of the device's strategy, in bytes; None before the first allocation."""
    text = ctypes.create_string_buffer(4096)
    _library.headroom_statistics.restype = ctypes.c_size_t
    if _library.headroom_statistics(device, text, ctypes.c_size_t(len(text))) == 0:
        return None
    return json.loads(text.value)


def nested_stats(counts):
    """statistics() in the shape of torch.cuda.memory_stats_as_nested_dict().

    What a strategy does not count is left out, rather than 0: pools of small and large blocks,
    segments, inactive splits, oversize blocks, and the peak of the number of allocations.
    """
    if counts is None:
        return {}
    stats = {}
    for kind in ("requested", "allocated", "active", "reserved"):
        values = {
            "current": counts[f"{kind}_bytes"],
            "peak": counts[f"{kind}_peak_bytes"],
            "allocated": counts[f"{kind}_total_bytes"],
            "freed": counts[f"{kind}_total_bytes"] - counts[f"{kind}_bytes"],
        }
        stats[f"{kind}_bytes"] = {"all": values}
    stats["allocation"] = {
        "all": {
            "current": counts["allocations"] - counts["deallocations"],
            "allocated": counts["allocations"],
            "freed": counts["deallocations"],
        }
    }
    stats["num_ooms"] = counts["failures"]
    stats["num_alloc_retries"] = counts["retries"]
    stats["num_device_alloc"] = counts["driver_allocations"]
    stats["num_device_free"] = counts["driver_releases"]
    return stats


def _answer_for_pytorch():
    """PyTorch asks its own allocator only, and the functions raise under another one.

    memory_stats(), memory_allocated(), max_memory_allocated(), memory_reserved() and
    max_memory_reserved() read memory_stats_as_nested_dict().
    """
    from torch.cuda._utils import _get_device_index

    def stats(device=None):
        return nested_stats(statistics(_get_device_index(device, optional=True)))

    def summary(device=None, abbreviated=False):
        return json.dumps(statistics(_get_device_index(device, optional=True)), indent=2)

    def reset_peaks(device=None):
        _library.headroom_reset_peaks(_get_device_index(device, optional=True))

    def reset_totals(device=None):
        warnings.warn("Headroom's counts of calls start with the process and were not reset")

    for owner in (torch.cuda, torch.cuda.memory):
        owner.memory_stats_as_nested_dict = stats
        owner.memory_summary = summary
        owner.reset_peak_memory_stats = reset_peaks
        owner.reset_max_memory_allocated = reset_peaks
        owner.reset_max_memory_cached = reset_peaks
        owner.reset_accumulated_memory_stats = reset_totals
    # The functions of the same names for any accelerator; older versions of PyTorch lack them.
    accelerator = getattr(torch, "accelerator", None)
    for owner in (accelerator, getattr(accelerator, "memory", None)):
        if not hasattr(owner, "memory_stats"):
            continue
        owner.memory_stats = torch.cuda.memory_stats
        owner.reset_peak_memory_stats = reset_peaks
        owner.reset_accumulated_memory_stats = reset_totals
