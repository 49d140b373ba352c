"""Tests that a trace reads the headers of large files of tensors, not their weights. See python_test.sh

The files here are sparse: they say that they hold 8 GiB, and take next to no disk. The tests bound the memory of the process.
"""

import os
import resource
import tempfile
import unittest

import torch
from torch import nn

from headroom.torch import trace

SIZE = 1 << 33  # bytes of the large tensor


def peak(make_state, device):
    """The peak of a program that loads a large tensor and a small one, whose values decide a size."""

    def make_step():
        state = make_state()
        large, small = state["large"].to("cuda"), state["small"].to("cuda")
        assert large.device.type == "cuda" and state["large"].device.type == device
        assert small.tolist() == [0, 0]
        return lambda: nn.functional.relu(large)

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    bytes_ = trace(make_step, steps=1).peak_bytes
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20, "a GiB of a file was read"
    return bytes_


@unittest.skipIf(not hasattr(torch.serialization, "skip_data"), "PyTorch writes no sparse files")
class Load(unittest.TestCase):
    def test_reads_no_weights(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "large.pt")
            large = torch.empty(SIZE // 2, dtype=torch.float16)  # its memory is not touched
            with torch.serialization.skip_data():
                torch.save({"large": large, "small": torch.zeros(2, dtype=torch.int64)}, path)
            if os.stat(path).st_blocks > 1 << 16:
                self.skipTest("the file system has no sparse files")
            for place, device in (
                (None, "cpu"),
                ("cpu", "cpu"),
                ("cuda", "cuda"),
                (torch.device("cuda", 0), "cuda"),
                ({"cpu": "cuda:0"}, "cuda"),
                (lambda storage, location: storage.cuda(0), "cuda"),
                (lambda storage, location: storage, "cpu"),
            ):
                found = peak(lambda: torch.load(path, map_location=place), device)
                self.assertLess(abs(found - 2 * SIZE), 4096)

    def test_gives_data_of_small_files_and_views_of_one_storage(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "small.pt")
            table = torch.arange(1 << 16)
            torch.save({"table": table, "row": table[2:4], "net": nn.Linear(4, 4).state_dict()}, path)

            def make_step():
                state = torch.load(path, map_location="cuda")
                assert state["row"].tolist() == [2, 3]
                nn.Linear(4, 4).load_state_dict(state["net"])
                return lambda: state["table"][:0] + 1

            self.assertLess(abs(trace(make_step, steps=1).peak_bytes - (8 << 16)), 4096)


if __name__ == "__main__":
    unittest.main()
