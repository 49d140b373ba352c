"""What the kernels of a GPU take for themselves, as recorded on cards. See python_test.sh"""

import csv
import os
import struct
import sys
import unittest

import torch
from torch import nn
from torch.nn import functional as F

from headroom.torch import trace
from headroom.torch import cudnn, reduction
from headroom.torch.conv_workspace import FILTER, FORWARD, INPUT, Convolution
from headroom.torch.conv_workspace import Workspaces, size_of_1x1
from headroom.torch.gpus import find_gpu
from headroom.torch.recorder import WORKSPACE

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "recorded"))
import train  # noqa: E402


def convolution(dtype, tensor, weight, out, stride=1, padding=1, groups=1):
    pairs = (stride, stride), (padding, padding), (1, 1)
    return Convolution(dtype, tensor, weight, out, *pairs, groups, False)


class Convolutions(unittest.TestCase):
    """Workspaces as PyTorch 2.11 took them in recorded trainings on an H200: cuDNN 9.19; 9.26 says
    the same."""

    def test_products_are_chosen_as_recorded(self):
        path = os.path.join(os.path.dirname(train.__file__), "products.csv")
        with open(path, encoding="utf-8") as file:
            rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
        parts = {"forward": FORWARD, "input": INPUT, "filter": FILTER}
        differ = 0
        for row in rows:
            channels, filters, pixels, images, size, named = (
                int(row[name])
                for name in ("channels", "filters", "pixels", "images", "bytes", "named_bytes")
            )
            convolution = Convolution(
                getattr(torch, row["type"]),
                (images, channels, pixels, 1),
                (filters, channels, 1, 1),
                (images, filters, pixels, 1),
                *((1, 1), (0, 0), (1, 1), 1, False),
            )
            found = size_of_1x1(convolution, parts[row["part"]], named)
            differ += abs(found - size) > 512
        self.assertEqual(len(rows), 531)
        self.assertLessEqual(differ, 17)

    def setUp(self):
        self.workspaces = Workspaces(find_gpu("h200"))

    def test_products_over_tensors_as_they_lie_take_a_filter_for_each_image(self):
        narrow = convolution(
            torch.float32, (16, 256, 56, 56), (64, 256, 1, 1), (16, 64, 56, 56), padding=0
        )
        self.assertLessEqual(self.workspaces.bytes_of(narrow, FORWARD), 512)
        self.assertLessEqual(self.workspaces.bytes_of(narrow, INPUT), 512)
        self.assertEqual(self.workspaces.bytes_of(narrow, FILTER), 16 * 256 * 64 * 4)

    @unittest.skipIf(cudnn.library() is None, "PyTorch without cuDNN 9.8")
    def test_workspaces_are_those_that_cudnn_takes(self):
        small = (16, 512, 7, 7)
        large = (16, 64, 56, 56)
        up = (4, 512, 32, 32), (1024, 512, 2, 2), (4, 1024, 16, 16), 2, 0
        grouped = (16, 256, 56, 56), (256, 8, 3, 3), (16, 256, 28, 28), 2, 1, 32
        for dtype, arguments, part, expected in (
            (torch.float32, (small, (512, 512, 3, 3), small), FILTER, 14221535),
            (torch.float32, (large, (64, 64, 3, 3), large), FORWARD, 12992528),
            (torch.bfloat16, (small, (512, 512, 3, 3), small), INPUT, 6324240),
            (torch.float32, up, INPUT, 20971667),
            (torch.bfloat16, grouped, FORWARD, 32149520),
        ):
            made = convolution(dtype, *arguments)
            self.assertEqual(self.workspaces.bytes_of(made, part), expected, (dtype, arguments))

    @unittest.skipIf(cudnn.library() is None, "PyTorch without cuDNN 9.8")
    def test_engines_with_smaller_workspaces_follow(self):
        images = (64, 64, 32, 32)
        made = convolution(torch.float32, images, (64, 64, 3, 3), images)
        # What PyTorch tried on an H200 with too little room: 33,701,904 and above at first.
        self.assertEqual(self.workspaces.choices_of(made, FORWARD), [33701904, 16924688, 0])
        for part in (INPUT, FILTER):
            choices = self.workspaces.choices_of(made, part)
            self.assertEqual(choices, sorted(set(choices), reverse=True))
            self.assertEqual((choices[0], choices[-1]), (self.workspaces.bytes_of(made, part), 0))
        # There ResNet-50 took an engine of the list that PyTorch tries last.
        made = convolution(torch.bfloat16, (32, 1024, 14, 14), (512, 1024, 1, 1), (32, 512, 14, 14), padding=0)
        self.assertEqual(self.workspaces.choices_of(made, FILTER)[-2:], [2101264, 0])

    def test_a_convolution_has_a_name_for_itself_in_a_trace(self):
        images = (64, 64, 32, 32)
        first, second = (convolution(torch.float32, images, (64, 64, 3, 3), images, groups=n) for n in (1, 2))
        names = [self.workspaces.name_of(made, part) for made in (first, second) for part in (FORWARD, INPUT)]
        self.assertEqual([name.partition(" for ")[2].split(",")[0][-1] for name in names], list("1234"))
        self.assertEqual(self.workspaces.name_of(second, FORWARD), names[2])

    def test_clusters_are_found_in_the_descriptors_of_known_versions_alone(self):
        name = list(struct.unpack("2i", b"NVIDIA H"))
        one = [18] + [0] * 23
        launches = [18 // blocks for blocks in range(1, 33)]
        older = [0] * 5 + [900, 13000] + one + [0] * 16 + name
        newer = [0] * 5 + [900, 13000, 0] + one + launches + name
        other = [0] * 5 + [900, 13000, 7] + one + launches + name
        moved = [0] * 5 + [900, 13000] + one + [0] * 20 + name
        for words, expected in (
            (older, (7, 16)),
            (newer, (8, 32)),
            (other, None),
            (moved, None),
            (older[:-2], None),
        ):
            found = cudnn._clusters_place(words, [900, 13000], "NVIDIA H200")
            self.assertEqual(found, expected)


class Reductions(unittest.TestCase):
    def test_a_loss_copies_the_classes_of_one_step(self):
        def make(batch):
            words = torch.randn(batch, 10, device="cuda", requires_grad=True)
            classes = torch.zeros(batch, 7, dtype=torch.long, device="cuda")
            step = classes[:, 0] if batch == 48 else classes[:, 0].contiguous()
            return lambda: F.cross_entropy(words, step).backward()

        def copies(batch):
            blocks = trace(make, batch=batch, steps=1, device="h200").blocks
            return sum(block.size == batch * 8 and "nll_loss" in block.op for block in blocks)

        self.assertEqual((copies(48), copies(49)), (2, 0))  # forward and backward

    def test_buffers_are_those_of_a_recorded_gpt2(self):
        gpu = find_gpu("h200")
        for columns, expected in (
            (768, (25165824, 24)),
            (2304, (75497472, 72)),
            (3072, (100663296, 96)),
        ):
            self.assertEqual(
                reduction.buffers(gpu, (4096, columns), (columns, 1), 4, {0}), expected
            )


class Kernels(unittest.TestCase):
    def events(self, forward):
        """(op, bytes) of what a step allocates, small ones left out."""

        def make_step():
            x = torch.randn(64, 64, 64, device="cuda", requires_grad=True)
            return lambda: forward(x).sum().backward()

        return [(block.op, block.size) for block in trace(make_step, steps=1).blocks if block.size >= 1 << 19]

    def test_softmax_makes_float32_of_float16_without_a_copy(self):
        found = self.events(lambda x: x.half().softmax(-1, dtype=torch.float32))
        self.assertEqual(found[1:3], [("aten::_to_copy", 1 << 19), ("aten::_softmax", 1 << 20)])

    def test_softmax_has_its_gradient_before_the_product_and_a_dense_copy(self):
        def forward(x):
            return x.half().softmax(-1, dtype=torch.float32).transpose(0, 1) * x

        found = [size for op, size in self.events(forward) if op == "aten::_softmax_backward_data"]
        self.assertEqual(found, [1 << 19, 1 << 20, 1 << 20])  # as recorded on an H200

    def test_the_gradient_of_a_view_that_was_changed_in_place_goes_into_zeros(self):
        found = [op for op, _ in self.events(lambda x: (x * 2).view(-1).relu_().view(64, -1) * 2)]
        at = found.index("aten::new_zeros")
        self.assertEqual(found[at + 1 : at + 3], ["aten::new_empty_strided", "aten::clone"])

    @unittest.skipIf(cudnn.library() is None, "PyTorch without cuDNN 9.8")
    def test_a_1x1x1_convolution_is_a_product_and_cudnn_names_the_gradient_of_its_filter(self):
        def make_step():
            net = nn.Conv3d(32, 4, 1).cuda().half()
            x = torch.randn(2, 32, 96, 96, 96, device="cuda", dtype=torch.half, requires_grad=True)
            return lambda: net(x).sum().backward()

        blocks = [block for block in trace(make_step, steps=1).blocks if block.category == WORKSPACE]
        sizes = {op: max(block.size for block in blocks if block.op == op) for op in {block.op for block in blocks}}
        self.assertLessEqual(sizes.get("aten::convolution", 0), 512)  # recorded on an H200, as the next one
        self.assertAlmostEqual(sizes["aten::convolution_backward"] / 2**20, 135.58, 2)


if __name__ == "__main__":
    unittest.main()
