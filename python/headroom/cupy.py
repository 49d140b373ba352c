"""Headroom's memory strategies in CuPy. Before anything is allocated:

    import headroom.cupy
    headroom.cupy.use("mapped")          # or any other strategy, such as "caching+limit=4GiB"

Each device gets an allocator at its first use. Arrays are freed on the stream that they were made
for, as in CuPy's own pool.
"""

import threading

import cupy

from headroom.allocator import Allocator, OutOfMemory

_allocators = {}
_strategy = "mapped"
_lock = threading.Lock()


def use(strategy="mapped"):
    """Makes the strategy CuPy's allocator of device memory on all devices from now on."""
    global _strategy
    if _allocators and strategy != _strategy:
        raise RuntimeError(f"arrays were allocated under {_strategy} already")
    _strategy = strategy
    cupy.cuda.set_allocator(_allocate)


def allocator_of(device):
    """The Allocator of a device, by its number."""
    with _lock:
        if device not in _allocators:
            _allocators[device] = Allocator(_strategy, f"cuda:{device}")
        return _allocators[device]


def statistics(device=0):
    """Returns the statistics of the device's strategy; None before the first allocation."""
    return _allocators[device].statistics() if device in _allocators else None


def _allocate(size):
    device = cupy.cuda.runtime.getDevice()
    allocator = allocator_of(device)
    try:
        buffer = allocator.buffer(size, cupy.cuda.get_current_stream().ptr)
    except OutOfMemory as error:
        raise _cupy_error(allocator, size, error) from error
    memory = cupy.cuda.UnownedMemory(buffer.pointer, size, buffer, device)
    return cupy.cuda.MemoryPointer(memory, 0)


def _cupy_error(allocator, size, error):
    """CuPy's own exception, which programs catch, with our message."""
    held = allocator.statistics()["allocated_bytes"]
    cupy_error = cupy.cuda.memory.OutOfMemoryError(size, held)
    cupy_error.args = (str(error),)
    return cupy_error
