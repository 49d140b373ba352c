"""A memory strategy of Headroom in Python, through ctypes alone.

    python3 use_strategy.py [libheadroom.so]

The package `headroom` has the same as a class: headroom.Allocator.
"""

import ctypes
import sys

library = ctypes.CDLL(sys.argv[1] if len(sys.argv) > 1 else "libheadroom.so.1")
library.headroom_error.restype = ctypes.c_char_p
library.headroom_version.restype = ctypes.c_char_p
library.headroom_strategy_name.restype = ctypes.c_char_p
library.headroom_trim.restype = ctypes.c_int64
# Pointers go through ctypes as int unless their type is given.
pointer, size = ctypes.c_void_p, ctypes.c_int64
library.headroom_allocate.argtypes = [pointer, size, pointer, ctypes.POINTER(pointer)]
library.headroom_deallocate.argtypes = [pointer, pointer, pointer]
library.headroom_trim.argtypes = [pointer]
library.headroom_close.argtypes = [pointer]


def check(status):
    if status != 0:
        raise RuntimeError(library.headroom_error().decode())


names = []
while (name := library.headroom_strategy_name(len(names))) is not None:
    names.append(name.decode())
print(f"libheadroom {library.headroom_version().decode()} has {', '.join(names)}")

allocator = pointer()
check(library.headroom_open(b"caching", b"sim:rtx-3090", ctypes.byref(allocator)))
blocks = []
for mib in (1, 20, 300):
    block = pointer()
    check(library.headroom_allocate(allocator, mib << 20, None, ctypes.byref(block)))
    blocks.append(block)
for block in blocks:
    check(library.headroom_deallocate(allocator, block, None))
print(f"trim released {library.headroom_trim(allocator) >> 20} MiB")

try:
    check(library.headroom_allocate(allocator, 1 << 40, None, ctypes.byref(pointer())))
except RuntimeError as error:
    print(error)
library.headroom_close(allocator)
