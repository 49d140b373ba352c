"""Headroom's memory strategies in Numba (an External Memory Management plugin). Either

    NUMBA_CUDA_MEMORY_MANAGER=headroom.numba python program.py

or, before the first use of CUDA,

    import headroom.numba
    headroom.numba.use("mapped")         # or any other strategy, such as "caching+limit=4GiB"

HEADROOM_STRATEGY says which strategy the first takes, mapped without it.
"""

import ctypes
import os
import weakref

from numba import cuda
from numba.cuda import HostOnlyCUDAMemoryManager, MemoryPointer

from headroom.allocator import Allocator

_allocators = {}


def use(strategy=None):
    """Makes the strategy Numba's allocator of device memory."""
    if strategy is not None:
        os.environ["HEADROOM_STRATEGY"] = strategy
    cuda.set_memory_manager(HeadroomManager)


def statistics(device=0):
    """Returns the statistics of the device's strategy; None before the first allocation."""
    return _allocators[device].statistics() if device in _allocators else None


def _address(pointer):
    """Numba's kind of pointer: of NVIDIA's bindings, which newer releases always use, else of ctypes."""
    from numba.cuda.cudadrv import driver

    if getattr(driver, "USE_NV_BINDING", True):
        return driver.binding.CUdeviceptr(pointer)
    return ctypes.c_uint64(pointer)


class HeadroomManager(HostOnlyCUDAMemoryManager):
    """Device memory from a strategy; page-locked and managed memory stay Numba's."""

    def initialize(self):
        pass

    def memalloc(self, size):
        device = self.context.device.id
        if device not in _allocators:
            strategy = os.environ.get("HEADROOM_STRATEGY") or "mapped"
            _allocators[device] = Allocator(strategy, f"cuda:{device}")
        buffer = _allocators[device].buffer(size)
        # Numba clears the table when it resets the context; then another buffer may have the address.
        address, still_here = buffer.pointer, weakref.ref(buffer)
        self.allocations[address] = buffer

        def finalizer():
            if self.allocations.get(address) is still_here() is not None:
                del self.allocations[address]

        return MemoryPointer(self.context, _address(address), size, finalizer=finalizer)

    def get_memory_info(self):
        from numba.cuda import MemoryInfo

        counts = statistics(self.context.device.id)
        if counts is None:
            raise NotImplementedError("nothing was allocated yet")
        idle = counts["reserved_bytes"] - counts["allocated_bytes"]
        return MemoryInfo(
            free=counts["device_free_bytes"] + idle, total=counts["device_total_bytes"]
        )

    def get_ipc_handle(self, memory):
        raise NotImplementedError("Headroom's blocks are shared within one process")

    @property
    def interface_version(self):
        return 1


_numba_memory_manager = HeadroomManager
