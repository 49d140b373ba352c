"""Headroom's memory strategies in PyTorch. Before anything is allocated on a GPU:

    import headroom.torch
    headroom.torch.use("mapped")        # or any other strategy, such as "caching+limit=4GiB"

The library libheadroom_torch.so is looked for beside this file, or where HEADROOM_TORCH_LIBRARY says.
"""

import ctypes
import json
import os

import torch

_library = None


def use(strategy=None):
    """Makes the strategy PyTorch's allocator; without one, HEADROOM_STRATEGY says which, or "mapped"."""
    global _library
    if strategy is not None:
        os.environ["HEADROOM_STRATEGY"] = strategy
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libheadroom_torch.so")
    path = os.environ.get("HEADROOM_TORCH_LIBRARY", beside)
    allocator = torch.cuda.memory.CUDAPluggableAllocator(path, "headroom_malloc", "headroom_free")
    _library = ctypes.CDLL(path)
    inner = allocator.allocator()
    # Hooks that older versions of PyTorch lack: without them record_stream and empty_cache do nothing.
    hooks = {
        "set_record_stream_fn": "headroom_record_stream",
        "set_reset_fn": "headroom_empty_cache",
        "set_memory_fraction_fn": "headroom_memory_fraction",
    }
    for setter, function in hooks.items():
        if hasattr(inner, setter):
            getattr(inner, setter)(ctypes.cast(getattr(_library, function), ctypes.c_void_p).value)
    torch.cuda.memory.change_current_allocator(allocator)
    return allocator


def statistics(device=0):
    """What the strategy of the device counts, in bytes; None before the first allocation."""
    text = ctypes.create_string_buffer(4096)
    _library.headroom_statistics.restype = ctypes.c_size_t
    if _library.headroom_statistics(device, text, ctypes.c_size_t(len(text))) == 0:
        return None
    return json.loads(text.value)
