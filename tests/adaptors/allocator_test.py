"""headroom.allocator, and its hooks for CuPy and Numba against stand-ins that follow their published
interfaces. HEADROOM_LIBRARY names libheadroom.so; strategies run on a simulated GPU."""

import gc
import os
import subprocess
import sys
import threading
import types
import unittest
from unittest import mock

from headroom import allocator
from headroom.allocator import Allocator, HeadroomError, OutOfMemory

MIB = 1 << 20


def on_simulated_gpu(strategy="mapped", device="cuda"):
    return Allocator(strategy, "sim:rtx-3090")


class TestAllocator(unittest.TestCase):
    def test_buffers_free_themselves(self):
        pool = Allocator("caching", "sim:rtx-3090")
        first, second = pool.buffer(3 * MIB), pool.buffer(MIB, 7)
        self.assertNotEqual(first.pointer, second.pointer)
        self.assertEqual(pool.statistics()["requested_bytes"], 4 * MIB)
        del first, second
        gc.collect()
        self.assertEqual(pool.statistics()["allocated_bytes"], 0)
        self.assertGreater(pool.trim(), 0)
        self.assertEqual(pool.statistics()["reserved_bytes"], 0)
        pool.close()

    def test_no_room_is_a_memory_error_with_the_holders(self):
        pool = Allocator("caching+limit=64MiB", "sim:rtx-3090")
        with self.assertRaisesRegex(MemoryError, "tried to allocate 65.00 MiB"):
            pool.allocate(65 * MIB)
        self.assertEqual(pool.allocate(0), 0)

    def test_wrong_calls_are_errors_and_no_crash(self):
        with self.assertRaisesRegex(HeadroomError, "caching"):
            Allocator("cachin", "cpu")
        pool = Allocator("pool", "cpu")
        block = pool.allocate(100)
        pool.deallocate(block)
        for call in (pool.deallocate, lambda pointer: pool.record_use(pointer, 1)):
            with self.assertRaisesRegex(HeadroomError, "not a live block"):
                call(block)
        self.assertIn("mapped", allocator.strategies())

    def test_sizes_that_no_block_has_are_refused_and_not_wrapped(self):
        pool = Allocator("caching", "sim:rtx-3090")
        for call in (pool.allocate, pool.buffer):
            for size, why in (
                (2**70, "above 2"),
                (2**64, "above 2"),
                (2**63, "above 2"),
                (-1, "negative"),
            ):
                with self.assertRaisesRegex(ValueError, f"a size of {size} bytes is {why}"):
                    call(size)
            with self.assertRaises(TypeError):
                call(1.5)
            with self.assertRaises(HeadroomError):
                call(2**63 - 1)
        self.assertEqual(pool.statistics()["requested_bytes"], 0)

    def test_after_close_buffers_vanish_in_silence_and_calls_are_errors(self):
        pool = Allocator("caching", "sim:rtx-3090")
        kept = pool.buffer(MIB)
        self.assertFalse(pool.closed)
        pool.close()
        pool.close()
        self.assertTrue(pool.closed)
        with mock.patch.object(sys, "unraisablehook") as unraised:
            del kept
            gc.collect()
        unraised.assert_not_called()
        calls = (pool.trim, pool.statistics, lambda: pool.buffer(1), lambda: pool.deallocate(4096))
        for call in calls:
            with self.assertRaisesRegex(HeadroomError, "the allocator is closed"):
                call()

    def test_threads_share_it(self):
        pool = Allocator("caching", "sim:rtx-3090")

        def work(stream):
            for _ in range(300):
                pool.deallocate(pool.allocate(4096, stream), stream)

        threads = [threading.Thread(target=work, args=(stream,)) for stream in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(pool.statistics()["deallocations"], 1200)


class TestCupy(unittest.TestCase):
    def setUp(self):
        import headroom.cupy

        self.hook = headroom.cupy
        self.hook._allocators.clear()
        self.hook.Allocator = on_simulated_gpu

    def test_arrays_take_and_free_blocks_of_the_strategy(self):
        import cupy

        self.hook.use("mapped")
        array = cupy.cuda.alloc(5 * MIB)
        self.assertEqual(self.hook.statistics()["requested_bytes"], 5 * MIB)
        cupy._stream = 9
        other = cupy.cuda.alloc(MIB)
        cupy._stream = 0
        self.assertEqual(other.mem._owner.stream, 9)
        del array, other
        gc.collect()
        counts = self.hook.statistics()
        self.assertEqual(counts["allocated_bytes"], 0)
        self.assertEqual(counts["requested_peak_bytes"], 6 * MIB)

    def test_no_room_is_cupys_own_exception(self):
        import cupy

        self.hook.use("mapped")
        with self.assertRaises(cupy.cuda.memory.OutOfMemoryError) as caught:
            cupy.cuda.alloc(1 << 40)
        self.assertIn("tried to allocate 1.00 TiB", str(caught.exception))
        self.assertEqual(cupy.cuda.alloc(0).ptr, 0)

    def test_a_second_strategy_is_refused_once_arrays_exist(self):
        import cupy

        self.hook.use("mapped")
        array = cupy.cuda.alloc(1)
        with self.assertRaisesRegex(RuntimeError, "under mapped already"):
            self.hook.use("caching")
        del array


class TestNumba(unittest.TestCase):
    def test_the_manager_follows_the_plugin_interface(self):
        import headroom.numba as hook
        from numba import cuda

        hook.Allocator = on_simulated_gpu
        hook.use("mapped")
        self.assertIs(hook._numba_memory_manager, hook.HeadroomManager)
        manager = cuda.manager()
        with self.assertRaises(NotImplementedError):
            manager.get_memory_info()
        array = manager.memalloc(3 * MIB)
        self.assertNotEqual(array.device_pointer.value, 0)
        self.assertEqual(hook.statistics()["requested_bytes"], 3 * MIB)
        self.assertGreater(manager.get_memory_info().free, 1 << 30)
        del array
        gc.collect()
        self.assertEqual(hook.statistics()["allocated_bytes"], 0)
        kept = manager.memalloc(MIB)
        manager.reset()
        gc.collect()
        self.assertEqual(hook.statistics()["allocated_bytes"], 0, "a reset frees all arrays")
        del kept
        with self.assertRaises(OutOfMemory):
            manager.memalloc(1 << 40)

    def test_addresses_are_of_the_bindings_that_numba_uses(self):
        import headroom.numba as hook
        from numba.cuda.cudadrv import driver

        def address():
            return hook._address(4096)

        bindings = types.SimpleNamespace(CUdeviceptr=lambda value: ("CUdeviceptr", value))
        with mock.patch.object(driver, "binding", bindings, create=True):
            self.assertEqual(address().value, 4096)
            with mock.patch.object(driver, "USE_NV_BINDING", True):
                self.assertEqual(address(), ("CUdeviceptr", 4096))
            before = driver.USE_NV_BINDING
            del driver.USE_NV_BINDING  # newer releases have no other bindings
            try:
                self.assertEqual(address(), ("CUdeviceptr", 4096))
            finally:
                driver.USE_NV_BINDING = before


class TestExit(unittest.TestCase):
    def test_a_program_that_keeps_arrays_ends_quietly(self):
        code = (
            "import headroom.cupy as hook, cupy\n"
            "from headroom.allocator import Allocator\n"
            "hook.Allocator = lambda strategy, device: Allocator(strategy, 'sim:rtx-3090')\n"
            "hook.use('mapped')\n"
            "kept = [cupy.cuda.alloc(1 << 20) for _ in range(10)]\n"
        )
        done = subprocess.run(
            [sys.executable, "-S", "-c", code], capture_output=True, text=True, env=os.environ
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
