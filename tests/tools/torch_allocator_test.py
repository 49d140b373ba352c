"""headroom.torch.use() as a program meets it: torch.cuda answers with the strategy's counts. usage:
torch_allocator_test.py LIBRARY FOLDER, with libheadroom_torch.so and the folder of the package headroom.

PyTorch is not there in tests; what `use` touches of it stands below, with memory_stats() as PyTorch's
torch/cuda/memory.py has it. The strategy has a simulated GPU.
"""

import ctypes
import os
import sys
import types
import unittest
import warnings


class Inner:
    """The C++ side of PyTorch's CUDAPluggableAllocator: setters of hooks."""

    def __init__(self):
        self.hooks = {}

    def set_record_stream_fn(self, address):
        self.hooks["record_stream"] = address

    def set_reset_fn(self, address):
        self.hooks["reset"] = address


class PluggableAllocator:
    def __init__(self, path, malloc, free):
        library = ctypes.CDLL(path)
        self.malloc = getattr(library, malloc)
        self.malloc.restype = ctypes.c_void_p
        self.malloc.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
        self.free = getattr(library, free)
        self.free.restype = None
        self.free.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
        self.inner = Inner()

    def allocator(self):
        return self.inner


def stand_in():
    """torch, torch.cuda, torch.cuda.memory and torch.cuda._utils, as far as they are used."""
    torch, cuda, utils = (types.ModuleType(name) for name in ("torch", "torch.cuda", "torch.cuda._utils"))
    memory = types.ModuleType("torch.cuda.memory")
    source = """
import collections

def memory_stats_as_nested_dict(device=None):
    raise RuntimeError("CUDAPluggableAllocator does not yet support getDeviceStats")

def memory_stats(device=None):
    result = []
    def add(prefix, value):
        if isinstance(value, dict):
            for key, part in value.items():
                add(prefix + "." + key if prefix else key, part)
        else:
            result.append((prefix, value))
    add("", memory_stats_as_nested_dict(device=device))
    return collections.OrderedDict(sorted(result))

def memory_allocated(device=None):
    return memory_stats(device=device).get("allocated_bytes.all.current", 0)

def max_memory_reserved(device=None):
    return memory_stats(device=device).get("reserved_bytes.all.peak", 0)

def change_current_allocator(allocator):
    global current
    current = allocator
"""
    exec(source, memory.__dict__)
    memory.CUDAPluggableAllocator = PluggableAllocator
    utils._get_device_index = lambda device, optional=False: 0 if device is None else device
    torch.cuda, cuda.memory = cuda, memory
    for name in ("memory_stats", "memory_allocated", "max_memory_reserved"):
        setattr(cuda, name, getattr(memory, name))
    torch.accelerator = types.SimpleNamespace(memory_stats=None)
    torch.accelerator.memory = types.SimpleNamespace(memory_stats=None)
    sys.modules.update({"torch": torch, "torch.cuda": cuda, "torch.cuda.memory": memory, "torch.cuda._utils": utils})
    return torch


MIB = 1 << 20


class AllocatorTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.torch = stand_in()
        import headroom.torch

        cls.headroom = headroom.torch
        cls.allocator = headroom.torch.use("caching+limit=100MiB")

    def stats(self, device):
        return self.torch.cuda.memory_stats(device)

    def test_the_strategy_is_pytorchs_allocator_with_its_hooks(self):
        self.assertIs(self.torch.cuda.memory.current, self.allocator)
        self.assertTrue(all(self.allocator.inner.hooks.values()))
        self.assertEqual(set(self.allocator.inner.hooks), {"record_stream", "reset"})

    def test_nothing_is_counted_before_the_first_allocation(self):
        self.assertEqual(self.stats(7), {})
        self.assertEqual(self.torch.cuda.memory_allocated(7), 0)

    def test_counts_have_pytorchs_names(self):
        first = self.allocator.malloc(3 * MIB - 100, 1, None)
        second = self.allocator.malloc(5 * MIB, 1, None)
        self.allocator.free(second, 5 * MIB, 1, None)
        stats = self.stats(1)
        self.assertEqual(
            {name: value for name, value in stats.items() if name.startswith("requested_bytes.all.")},
            {
                "requested_bytes.all.current": 3 * MIB - 100,
                "requested_bytes.all.peak": 8 * MIB - 100,
                "requested_bytes.all.allocated": 8 * MIB - 100,
                "requested_bytes.all.freed": 5 * MIB,
            },
        )
        self.assertEqual(stats["allocated_bytes.all.current"], 3 * MIB)
        self.assertEqual(stats["active_bytes.all.peak"], 8 * MIB)
        self.assertEqual(stats["reserved_bytes.all.current"], 20 * MIB)
        self.assertEqual(stats["allocation.all.current"], 1)
        self.assertEqual(stats["allocation.all.allocated"], 2)
        self.assertEqual(stats["allocation.all.freed"], 1)
        self.assertEqual((stats["num_device_alloc"], stats["num_device_free"]), (1, 0))
        self.assertEqual((stats["num_ooms"], stats["num_alloc_retries"]), (0, 0))
        self.assertEqual(self.torch.cuda.memory_allocated(1), 3 * MIB)
        self.assertEqual(self.torch.cuda.max_memory_reserved(1), 20 * MIB)
        for owner in (self.torch.accelerator, self.torch.accelerator.memory):
            self.assertEqual(owner.memory_stats(1), stats)
        self.torch.cuda.reset_peak_memory_stats(1)
        self.assertEqual(self.stats(1)["requested_bytes.all.peak"], 3 * MIB - 100)
        self.allocator.free(first, 3 * MIB - 100, 1, None)

    def test_what_is_not_known_is_absent(self):
        self.allocator.free(self.allocator.malloc(MIB, 2, None), MIB, 2, None)
        for name in self.stats(2):
            self.assertNotIn("_pool.", name)
            self.assertFalse(name.startswith(("inactive_split", "segment.", "oversize")), name)

    def test_retries_are_counted(self):
        self.allocator.free(self.allocator.malloc(60 * MIB, 3, None), 60 * MIB, 3, None)
        block = self.allocator.malloc(80 * MIB, 3, None)  # within the limit without the idle segment alone
        self.assertEqual(self.stats(3)["num_alloc_retries"], 1)
        self.allocator.free(block, 80 * MIB, 3, None)

    def test_totals_are_not_reset_without_a_word(self):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.torch.cuda.reset_accumulated_memory_stats(1)
        self.assertEqual(len(caught), 1)


if __name__ == "__main__":
    os.environ["HEADROOM_TORCH_LIBRARY"] = sys.argv[1]
    os.environ["HEADROOM_TORCH_DEVICE"] = "sim:h200"
    sys.path.insert(0, sys.argv[2])
    sys.dont_write_bytecode = True
    unittest.main(argv=sys.argv[:1])
