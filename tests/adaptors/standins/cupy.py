"""The part of CuPy's published interface that a memory allocator uses, over host memory: UnownedMemory, MemoryPointer,
set_allocator, the current stream and device. `alloc` makes arrays.
"""

import sys
import types

_allocator = None
_stream = 0


class UnownedMemory:
    def __init__(self, ptr, size, owner, device_id=-1):
        if ptr == 0 and device_id < 0:
            raise RuntimeError("UnownedMemory requires explicit device ID for a null pointer.")
        self.ptr, self.size, self._owner, self.device_id = ptr, size, owner, device_id


class MemoryPointer:
    def __init__(self, mem, offset):
        assert mem.ptr >= 0 and offset >= 0
        self.mem, self.ptr = mem, mem.ptr + offset


class OutOfMemoryError(MemoryError):
    def __init__(self, size, total, limit=0):
        super().__init__(f"Out of memory allocating {size} bytes (allocated so far: {total} bytes).")


def set_allocator(allocator=None):
    global _allocator
    _allocator = allocator


def alloc(size):
    return _allocator(size)


cuda = types.ModuleType("cupy.cuda")
cuda.UnownedMemory = UnownedMemory
cuda.MemoryPointer = MemoryPointer
cuda.set_allocator = set_allocator
cuda.alloc = alloc
cuda.get_current_stream = lambda: types.SimpleNamespace(ptr=_stream)
cuda.runtime = types.SimpleNamespace(getDevice=lambda: 0)
cuda.memory = types.SimpleNamespace(OutOfMemoryError=OutOfMemoryError)
sys.modules["cupy.cuda"] = cuda
