"""Headroom's memory strategies in Python, through libheadroom.so. Knows no framework.

    from headroom.allocator import Allocator
    allocator = Allocator("mapped", "cuda:0")
    buffer = allocator.buffer(1 << 20)      # buffer.pointer; freed with the object

The library is looked for beside this package, where HEADROOM_LIBRARY says, and then where the
system looks for libraries.
"""

import ctypes
import operator
import os
import threading

_OUT_OF_MEMORY = 3
_LARGEST_SIZE = (1 << 63) - 1
_library = None
_lock = threading.Lock()


class HeadroomError(RuntimeError):
    """A call that failed; the text says why."""


class OutOfMemory(HeadroomError, MemoryError):
    """No room; the text says who holds the memory."""


class _Counts(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_int64)
        for name in (
            "requested_bytes",
            "requested_peak_bytes",
            "allocated_bytes",
            "allocated_peak_bytes",
            "reserved_bytes",
            "reserved_peak_bytes",
            "allocations",
            "deallocations",
            "driver_calls",
            "retries",
            "failures",
            "stream_waits",
            "largest_free_block_bytes",
            "device_free_bytes",
            "device_total_bytes",
        )
    ]


def library():
    """libheadroom.so, loaded at the first call."""
    global _library
    with _lock:
        if _library is not None:
            return _library
        beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libheadroom.so.1")
        path = os.environ.get("HEADROOM_LIBRARY") or (
            beside if os.path.exists(beside) else "libheadroom.so.1"
        )
        loaded = ctypes.CDLL(path)
        pointer, status = ctypes.c_void_p, ctypes.c_int
        text, size = ctypes.c_char_p, ctypes.c_int64
        to_pointer = ctypes.POINTER(pointer)
        for name, result, arguments in (
            ("version", text, []),
            ("error", text, []),
            ("strategy_name", text, [ctypes.c_int]),
            ("open", status, [text, text, to_pointer]),
            ("close", None, [pointer]),
            ("allocate", status, [pointer, size, pointer, to_pointer]),
            ("deallocate", status, [pointer, pointer, pointer]),
            ("record_use", status, [pointer, pointer, pointer]),
            ("trim", size, [pointer]),
            ("count", status, [pointer, ctypes.POINTER(_Counts), ctypes.c_size_t]),
        ):
            function = getattr(loaded, f"headroom_{name}")
            function.restype, function.argtypes = result, arguments
        _library = loaded
        return loaded


def _check(status):
    if status == 0:
        return
    message = library().headroom_error().decode()
    raise OutOfMemory(message) if status == _OUT_OF_MEMORY else HeadroomError(message)


def _checked_size(size):
    # ctypes would take the low 64 bits of any integer.
    size = operator.index(size)
    if size < 0:
        raise ValueError(f"a size of {size} bytes is negative")
    if size > _LARGEST_SIZE:
        raise ValueError(f"a size of {size} bytes is above 2^63-1")
    return size


def strategies():
    """The names of all strategies."""
    names = []
    while (name := library().headroom_strategy_name(len(names))) is not None:
        names.append(name.decode())
    return names


class Buffer:
    """A block of device memory, freed with the object on the stream that it was allocated for, or with all others when
    the allocator is closed.
    """

    def __init__(self, allocator, size, stream=0):
        self.pointer = 0
        self.size, self.stream, self._allocator = size, stream, allocator
        self.pointer = allocator.allocate(size, stream)

    def __del__(self):
        if self.pointer and not self._allocator.closed:
            self._allocator.deallocate(self.pointer, self.stream)


class Allocator:
    """A strategy over one device; thread-safe. Streams are their handles as int, 0 the default one."""

    def __init__(self, strategy="mapped", device="cuda"):
        self._handle = ctypes.c_void_p()
        self.strategy, self.device = strategy, device
        _check(
            library().headroom_open(strategy.encode(), device.encode(), ctypes.byref(self._handle))
        )

    @property
    def closed(self):
        """Returns true after close(): then there is no memory, and other calls raise HeadroomError."""
        return not self._handle

    def _open_handle(self):
        if self.closed:
            raise HeadroomError("the allocator is closed")
        return self._handle

    def allocate(self, size, stream=0):
        """The address of a block of `size` bytes; 0 for none. Raises ValueError for a size that is negative or above
        2^63-1.
        """
        size, block = _checked_size(size), ctypes.c_void_p()
        _check(library().headroom_allocate(self._open_handle(), size, stream, ctypes.byref(block)))
        return block.value or 0

    def deallocate(self, pointer, stream=0):
        """Frees a block; work that is queued on the stream may still use it."""
        _check(library().headroom_deallocate(self._open_handle(), pointer, stream))

    def record_use(self, pointer, stream):
        """Notes that another stream also uses the block."""
        _check(library().headroom_record_use(self._open_handle(), pointer, stream))

    def buffer(self, size, stream=0):
        """Allocates an object that frees its block."""
        return Buffer(self, size, stream)

    def trim(self):
        """Releases idle memory to the driver; returns the bytes released."""
        return library().headroom_trim(self._open_handle())

    def statistics(self):
        """Returns the strategy's statistics, in bytes and calls."""
        counts = _Counts()
        size = ctypes.sizeof(counts)
        _check(library().headroom_count(self._open_handle(), ctypes.byref(counts), size))
        return {name: getattr(counts, name) for name, _ in _Counts._fields_}

    def close(self):
        """Releases everything, live blocks too. Never called by itself: buffers may outlive it."""
        handle, self._handle = self._handle, ctypes.c_void_p()
        library().headroom_close(handle)
