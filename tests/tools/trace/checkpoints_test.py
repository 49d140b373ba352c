"""Checkpoints that a traced program loads. Runs where PyTorch is: tests/tools/trace/python_test.sh"""

import importlib.util
import io
import json
import os
import resource
import struct
import tempfile
import unittest

import torch
from torch import nn

from headroom.torch import trace

ROWS, COLUMNS = 8192, 4096
BYTES = ROWS * COLUMNS * 4  # 128 MiB


def of_file():
    """Bytes of mapped files that this process has read."""
    with open("/proc/self/smaps_rollup") as file:
        fields = dict(line.split(":", 1) for line in file if ":" in line[:24])
    return (int(fields["Rss"].split()[0]) - int(fields["Anonymous"].split()[0])) << 10


def training(load):
    """make_step of a net of one product whose weights `load` gives; counts what was read meanwhile."""

    def make_step(batch):
        net = nn.Linear(COLUMNS, ROWS, bias=False)
        before = of_file()
        net.load_state_dict(load())
        net.cuda()
        make_step.read = of_file() - before

        def step():
            net(torch.randn(batch, COLUMNS, device="cuda")).sum().backward()

        return step

    return make_step


def weights_on_gpu(make_step):
    blocks = trace(make_step, batch=2, steps=1).blocks
    return sum(block.size for block in blocks if block.phase == "setup" and block.size >= BYTES)


class Checkpoints(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = os.path.join(cls.folder.name, "weights.pt")
        torch.save({"weight": torch.ones(ROWS, COLUMNS)}, cls.path)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_weights_are_not_read(self):
        for options in ({}, {"map_location": "cpu"}, {"map_location": "cuda"}, {"map_location": {"cpu": "cuda:0"}}):
            make_step = training(lambda: torch.load(self.path, **options))
            weights_on_gpu(make_step)
            self.assertLess(make_step.read, BYTES // 2, options)

    def test_weights_go_where_they_are_asked_for(self):
        for place, copies in (
            (None, 1),
            ("cpu", 1),
            (lambda storage, saved: storage, 1),
            ("cuda", 2),
            (torch.device("cuda:0"), 2),
            ({"cpu": "cuda"}, 2),
            (lambda storage, saved: storage.cuda(), 2),
        ):
            make_step = training(lambda: torch.load(self.path, map_location=place))
            self.assertEqual(weights_on_gpu(make_step), copies * BYTES, place)

    def test_open_files_and_files_of_tied_weights_are_loaded(self):
        path = os.path.join(self.folder.name, "tied.pt")
        weight = torch.ones(ROWS, COLUMNS)
        torch.save({"a": weight, "b": weight.t(), "c": [weight[:1]]}, path)

        def load():
            with open(path, "rb") as file:
                loaded = torch.load(file, map_location="cuda")
            self.assertEqual(tuple(loaded["b"].shape), (COLUMNS, ROWS))
            self.assertEqual(loaded["c"][0].untyped_storage()._cdata, loaded["a"].untyped_storage()._cdata)
            return {"weight": loaded["a"]}

        self.assertEqual(weights_on_gpu(training(load)), 2 * BYTES)

    def test_every_kind_of_file_is_loaded_to_every_device(self):
        saved, old = io.BytesIO(), io.BytesIO()
        torch.save({"net": torch.ones(100, 100)}, saved)
        torch.save({"net": torch.ones(100, 100)}, old, _use_new_zipfile_serialization=False)
        module = os.path.join(self.folder.name, "module.pt")
        torch.save({"net": nn.Linear(100, 100, bias=False)}, module)

        def on_gpu(file, place):
            def make_step(batch):
                if hasattr(file, "seek"):
                    file.seek(0)
                net = torch.load(file, map_location=place, weights_only=file is not module)["net"]
                weight = getattr(net, "weight", net)
                self.assertEqual(weight.device.type, "cuda" if place == "cuda" else "cpu")
                moved = net.cuda()
                return lambda: getattr(moved, "weight", moved) * 2

            return [b.size for b in trace(make_step, batch=1, steps=1).blocks]

        for file in (saved, old, module):
            for place in (None, "cpu", "cuda"):
                self.assertEqual(on_gpu(file, place), [40_000, 40_000], (file, place))

    def test_weights_that_are_tied_stay_so_on_the_gpu(self):
        def make_step(batch):
            net = nn.Sequential(nn.Linear(COLUMNS, ROWS, bias=False), nn.Linear(COLUMNS, ROWS, bias=False))
            net[0].weight = net[1].weight = nn.Parameter(torch.load(self.path)["weight"])
            net.cuda()

            def step():
                net[0](torch.randn(batch, COLUMNS, device="cuda")).sum().backward()

            return step

        self.assertEqual(weights_on_gpu(make_step), BYTES)

    @unittest.skipIf(importlib.util.find_spec("transformers") is None, "no Transformers")
    def test_a_pretrained_model_takes_what_a_new_one_takes(self):
        from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

        config = GPT2Config(n_layer=2, n_embd=128, n_head=2, vocab_size=20_000, bos_token_id=1, eos_token_id=1)
        folder = os.path.join(self.folder.name, "gpt2")
        GPT2LMHeadModel(config).save_pretrained(folder)

        def peak_of(make_net):
            def make_step(batch):
                net = make_net().train()

                def step():
                    tokens = torch.randint(0, 20_000, (batch, 64), device="cuda")
                    net(input_ids=tokens, labels=tokens).loss.backward()

                return step

            return trace(make_step, batch=2, steps=2).peak_bytes

        new = peak_of(lambda: GPT2LMHeadModel(config).cuda())
        self.assertEqual(peak_of(lambda: AutoModelForCausalLM.from_pretrained(folder).cuda()), new)
        if importlib.util.find_spec("accelerate") is not None:
            placed = peak_of(lambda: AutoModelForCausalLM.from_pretrained(folder, device_map="cuda"))
            self.assertEqual(placed, new)

    def test_values_of_a_file_are_known(self):
        path = os.path.join(self.folder.name, "lengths.pt")
        torch.save({"lengths": torch.tensor([3, 5])}, path)

        def make_step(batch):
            length = torch.load(path)["lengths"].max().item()
            on_gpu = torch.load(path, map_location="cuda")["lengths"]

            def step():
                torch.zeros(length, on_gpu.sum().item(), 1 << 18, device="cuda")

            return step

        blocks = trace(make_step, batch=1, steps=1).blocks
        self.assertIn(5 * 8 << 20, [block.size for block in blocks])

    def test_a_library_may_read_its_storages_itself(self):
        path = os.path.join(self.folder.name, "read.pt")
        torch.save({"weight": torch.arange(4.0)}, path)

        def make_step(batch):
            storage = torch._C.PyTorchFileReader(path).get_storage_from_record("data/0", 16, torch.UntypedStorage)
            typed = torch.TypedStorage(wrap_storage=storage._typed_storage()._untyped_storage, dtype=torch.float32)
            weight = torch._utils._rebuild_tensor_v2(typed, 0, (2, 2), (2, 1), False, {})
            net = nn.Linear(2, 2).cuda()
            net.load_state_dict({"weight": weight, "bias": weight[0]})
            self.assertEqual(net.weight.tolist(), [[0, 1], [2, 3]])
            return lambda: net(torch.ones(1, 2, device="cuda")).sum().backward()

        trace(make_step, batch=1, steps=1)

    def test_weights_of_a_file_may_be_given_other_data(self):
        def make_step():
            net = nn.Linear(COLUMNS, ROWS, bias=False)
            net.load_state_dict(torch.load(self.path, mmap=True), assign=True)
            net.weight.data = nn.Linear(COLUMNS, ROWS // 2, bias=False).weight.data
            net.cuda()
            self.assertIsInstance(net.weight, nn.Parameter)
            return lambda: net(torch.ones(1, COLUMNS, device="cuda")).sum().backward()

        blocks = trace(make_step, steps=1).blocks
        self.assertEqual(sum(block.size == BYTES // 2 for block in blocks), 2)  # and the gradient

    @unittest.skipIf(importlib.util.find_spec("safetensors") is None, "no safetensors")
    def test_weights_of_safetensors_are_not_read(self):
        path = os.path.join(self.folder.name, "weights.safetensors")
        header = json.dumps(
            {"weight": {"dtype": "F32", "shape": [ROWS, COLUMNS], "data_offsets": [0, BYTES]}}
        ).encode()
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(header)) + header)
            file.truncate(8 + len(header) + BYTES)

        def in_one(device):
            from safetensors.torch import load_file

            return load_file(path, device=device)

        def one_by_one(device):
            from safetensors import safe_open

            with safe_open(path, "pt", device=device) as file:
                return {name: file.get_tensor(name) for name in file.keys()}

        for load in (in_one, one_by_one):
            for device, copies in (("cpu", 1), ("cuda", 2)):
                make_step = training(lambda: load(device))
                self.assertEqual(weights_on_gpu(make_step), copies * BYTES, (load, device))
                self.assertLess(make_step.read, BYTES // 2, (load, device))


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
class LargeFiles(unittest.TestCase):
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
