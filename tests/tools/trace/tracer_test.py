"""The tracer's promises. Runs where PyTorch is: tests/tools/trace/python_test.sh"""

import copy
import csv
import math
import os
import re
import struct
import sys
import tempfile
import unittest

import torch
from torch import nn
from torch.nn import functional as F

from headroom.torch import TraceError, trace
from headroom.torch import cudnn, reduction
from headroom.torch.conv_workspace import FILTER, FORWARD, INPUT, Convolution
from headroom.torch.conv_workspace import Workspaces, size_of_1x1
from headroom.torch.gpus import find_gpu

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "recorded"))
import train  # noqa: E402

MIB = 1 << 20
WEIGHTS, GRADIENTS, STATE, ACTIVATIONS, INPUTS, WORKSPACE, LIBRARY = range(1, 8)


def training(body, device="cuda", optimizer=torch.optim.SGD):
    """A program with one linear layer; `body(net, x)` computes its loss."""

    def make_step(batch):
        net = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256)).to(device)
        opt = optimizer(net.parameters(), lr=0.1)
        x = torch.randn(batch, 256, device=device)

        def step():
            opt.zero_grad()
            body(net, x).backward()
            opt.step()

        return step

    return make_step


def refusal(body):
    try:
        trace(training(body), batch=8, steps=1)
    except TraceError as error:
        return str(error)
    return ""


class Tracer(unittest.TestCase):
    def test_every_block_has_a_category_and_the_users_line(self):
        for make in (train.make_cnn, train.make_transformer):
            for block in trace(make, batch=4, steps=2).blocks:
                self.assertIn(block.category, range(1, 8))
                self.assertRegex(block.source, r"^t\w+\.py:\d+$")

    def test_all_memory_but_state_and_libraries_is_free_after_a_step(self):
        traced = trace(train.make_transformer, batch=4, steps=3)
        live = {}
        at_start = []
        for event in traced.recorder.events:
            if event[0] == "a":
                live[event[1].number] = event[1].size
            elif event[0] == "f":
                del live[event[1].number]
            elif event[1:] == (len(at_start) + 1, "forward"):
                at_start.append(sum(live.values()))
        self.assertEqual(at_start[1], at_start[2])

    def test_a_program_without_a_device_is_traced_as_on_the_gpu(self):
        def loss(net, x):
            return net(x).pow(2).mean()

        self.assertEqual(
            trace(training(loss, "cuda"), batch=8).peak_bytes,
            trace(training(loss, "cpu"), batch=8).peak_bytes,
        )

    def test_values_of_data_cannot_steer_a_step(self):
        self.assertIn(
            "item()",
            refusal(lambda net, x: net(x).mean() if net(x).mean().item() > 0 else x.mean()),
        )
        self.assertIn(
            "condition", refusal(lambda net, x: net(x).mean() if x.sum() > 0 else x.mean())
        )
        self.assertIn("take item()", refusal(lambda net, x: net(x).mean() * float(x.sum())))
        self.assertIn("nonzero", refusal(lambda net, x: net(x).mean() + x.nonzero().sum()))
        self.assertIn("index", refusal(lambda net, x: net(x)[x[:, 0] > 0].mean()))
        for text in (refusal(lambda net, x: net(x[x > 0]).mean()),):
            self.assertRegex(text, r"^tracer_test\.py:\d+: ")

    def test_values_of_constants_are_known(self):
        def loss(net, x):
            if torch.ones(4, device=x.device).all() and torch.arange(5).tolist() == [
                0,
                1,
                2,
                3,
                4,
            ]:
                return net(x).mean()
            raise AssertionError

        self.assertGreater(trace(training(loss), batch=8).peak_bytes, 0)

    def test_a_random_number_drawn_alone_can_steer_a_step(self):
        def loss(net, x):
            if torch.rand([]) < 0 or torch.empty(1).uniform_(2, 3).item() < 2:
                raise AssertionError
            return net(x)[: torch.randint(1, 3, (1,)).item()].mean()

        self.assertGreater(trace(training(loss), batch=8).peak_bytes, 0)
        self.assertIn(
            "condition", refusal(lambda net, x: net(x).mean() if (torch.rand(2) < 0).any() else 0)
        )
        self.assertIn(
            "condition", refusal(lambda net, x: net(x).mean() if F.dropout(net(x).mean()) else 0)
        )

    def test_a_refusal_names_the_line_of_the_library_that_the_users_line_led_to(self):
        with tempfile.TemporaryDirectory() as folder:
            package = os.path.join(folder, "site-packages", "lottery")
            os.makedirs(package)
            with open(os.path.join(package, "__init__.py"), "w", encoding="utf-8") as file:
                file.write("def is_even(x):\n    return x.sum().item() % 2 == 0\n")
            sys.path.insert(0, os.path.dirname(package))
            try:
                import lottery
            finally:
                sys.path.pop(0)
            text = refusal(lambda net, x: net(x).mean() if lottery.is_even(x) else 0)
        self.assertRegex(text, r"^tracer_test\.py:\d+: lottery/__init__\.py:2: item\(\) ")

    def test_data_loaders_may_shuffle_split_and_sample(self):
        data = torch.utils.data

        def make_step(batch):
            net = nn.Linear(16, 4).cuda()
            rows = data.TensorDataset(torch.randn(50, 16), torch.randint(0, 4, (50,)))
            first, second = data.random_split(rows, [40, 10])
            weighted = data.WeightedRandomSampler([1.0] * 50, 24)
            loaders = (
                data.DataLoader(first, batch_size=batch, shuffle=True),
                data.DataLoader(rows, batch_size=batch, sampler=weighted),
                data.DataLoader(second, batch, shuffle=True, generator=torch.Generator()),
            )

            def step():
                for loader in loaders:
                    for x, y in loader:
                        F.cross_entropy(net(x.cuda()), y.cuda()).backward()

            return step

        trace_of = trace(make_step, batch=8, steps=1)
        inputs = [e[1] for e in trace_of.recorder.events if e[0] == "a" and e[1].size == 8 * 16 * 4]
        self.assertGreaterEqual(len(inputs), 40 // 8 + 24 // 8 + 1)

    def test_optimizers_that_read_their_steps_and_norms_take_their_state(self):
        weights = 256 * 512 + 512 + 512 * 256 + 256
        for name, states in (("RAdam", 2), ("ASGD", 1), ("NAdam", 2), ("Adafactor", 0)):
            if not hasattr(torch.optim, name):
                continue
            traced = trace(
                training(lambda net, x: net(x).mean(), optimizer=getattr(torch.optim, name)),
                batch=8,
            )
            blocks = [e[1] for e in traced.recorder.events if e[0] == "a"]
            state = sum(b.size for b in blocks if b.category == STATE)
            self.assertGreaterEqual(state, states * 4 * weights, name)
            self.assertLess(state, (states + 1) * 4 * weights, name)

    def test_an_unknown_value_is_finite_and_prints_as_unknown(self):
        texts = []

        def loss(net, x):
            value = net(x).mean()
            number = value.item()
            if not math.isfinite(number) or math.isnan(number):
                raise AssertionError
            texts.append(f"{number:.2f} {number} {max(0.5, number)} {min([number, 1.0])}")
            return value

        self.assertGreater(trace(training(loss), batch=8, steps=1).peak_bytes, 0)
        self.assertEqual(texts, ["nan nan nan nan"])

    def test_what_a_trace_cannot_follow_is_refused_in_one_line(self):
        for body, expected in (
            (
                lambda net, x: F.embedding(
                    torch.zeros(8, dtype=torch.long, device="cuda"), net[0].weight, sparse=True
                ).mean(),
                "sparse tensors cannot be traced",
            ),
            (lambda net, x: torch.cuda.CUDAGraph(), "CUDA graphs cannot be traced"),
            (lambda net, x: net(torch.randn(8, 256)).mean(), "tensors to be on the same device"),
        ):
            self.assertRegex(refusal(body), rf"^tracer_test\.py:\d+: .*{expected}")

    def test_classes_of_torch_cuda_stay_classes(self):
        def loss(net, x):
            for kind in (torch.cuda.CUDAGraph, torch.cuda.graph, torch.cuda.Stream, torch.cuda.Event):
                kind | None  # as libraries annotate
            return net(x).mean()

        self.assertGreater(trace(training(loss), batch=8).peak_bytes, 0)

    def test_tensors_of_the_host_may_meet_the_gpu_where_pytorch_lets_them(self):
        def loss(net, x):
            rows = x[torch.tensor([0, 1])] * torch.tensor(2.0)
            F.one_hot(torch.zeros(8, dtype=torch.long, device=x.device), num_classes=3)
            x[torch.arange(8) > 3] = 0
            torch.empty(8, 256).copy_(x)
            return net(rows).mean()

        self.assertGreater(trace(training(loss), batch=8).peak_bytes, 0)

    def test_checkpoints_may_be_saved_in_a_step(self):
        def loss(net, x):
            torch.save(net.state_dict(), "/no/such/folder/weights.pt")
            return net(x).mean()

        self.assertGreater(trace(training(loss), batch=8).peak_bytes, 0)

    def test_weights_that_nothing_calls_are_weights(self):
        def make_step(batch):
            net = nn.Linear(256, 256).cuda()
            average = copy.deepcopy(net)
            late = copy.deepcopy(nn.Linear(256, 256)).cuda()

            def step():
                net(torch.randn(batch, 256, device="cuda")).mean().backward()
                return average, late

            return step

        blocks = [e[1] for e in trace(make_step, batch=8).recorder.events if e[0] == "a"]
        kept = [b for b in blocks if b.phase == "setup"]
        self.assertEqual([b.category for b in kept], [WEIGHTS] * 6)

    def test_integers_are_counted_as_a_gpu_counts_them(self):
        def loss(net, x):
            experts = torch.randint(0, 4, (64,), device=x.device).int()
            counts = torch.histc(experts, bins=4, min=0, max=3)
            if counts.dtype != torch.int32 or counts.shape != (4,):
                raise AssertionError
            return net(x).mean()

        self.assertGreater(trace(training(loss), batch=8).peak_bytes, 0)

    def test_weights_may_be_drawn_from_every_distribution_of_pytorch(self):
        init = nn.init

        def loss(net, x):
            weight = torch.empty(64, 48, device=x.device)
            for fill in (
                lambda w: init.trunc_normal_(w, std=0.02),
                lambda w: init.trunc_normal_(w, a=2.5, b=3.0),
                lambda w: init.sparse_(w, 0.1),
                *(
                    getattr(init, f"{name}_")
                    for name in ("uniform", "normal", "ones", "eye", "orthogonal")
                ),
                *(getattr(init, f"{name}_uniform_") for name in ("xavier", "kaiming")),
                *(getattr(init, f"{name}_normal_") for name in ("xavier", "kaiming")),
            ):
                fill(weight)
            init.dirac_(torch.empty(16, 16, 3, 3, device=x.device))
            return net(x).mean()

        self.assertGreater(trace(training(loss), batch=8).peak_bytes, 0)

    def test_a_loss_can_be_printed(self):
        def loss(net, x):
            value = net(x).mean()
            f"{value.item():.3f} {round(value.item(), 2)} {sum([value.item(), 1.0]) / 2}"
            return value

        self.assertGreater(trace(training(loss), batch=8).peak_bytes, 0)

    def test_a_function_that_makes_no_step_is_told_what_to_change(self):
        def two(batch, width):
            return None

        def model(batch):
            return nn.Linear(batch, batch)

        for make_step, expected in (
            (two, "two is called with a batch size alone; give 'width' a default"),
            (model, "not the model (Linear)"),
        ):
            with self.assertRaisesRegex(TraceError, re.escape(expected)):
                trace(make_step, batch=8)

    def test_compiled_models_are_refused(self):
        self.assertIn(
            "torch.compile cannot be traced", refusal(lambda net, x: torch.compile(net)(x).mean())
        )

    def test_checkpointing_keeps_less_and_computes_again(self):
        from torch.utils.checkpoint import checkpoint

        def plain(net, x):
            return net(x).mean()

        def again(net, x):
            return checkpoint(net, x, use_reentrant=False).mean()

        def forward_bytes(body):
            blocks = trace(training(body), batch=4096, steps=1).blocks
            return sum(
                b.size
                for b in blocks
                if b.category == ACTIVATIONS and b.phase == "forward" and b.op == "aten::gelu"
            ), len(blocks)

        self.assertGreater(forward_bytes(again)[1], forward_bytes(plain)[1])

    def test_accumulated_gradients_are_added_in_place(self):
        def loss(net, x):
            net(x).mean().backward()
            return net(x).mean()

        once = trace(training(lambda net, x: net(x).mean()), batch=8, steps=1).blocks
        twice = trace(training(loss), batch=8, steps=1).blocks
        count = [
            sum(b.category == GRADIENTS and b.tensor != "" for b in blocks)
            for blocks in (once, twice)
        ]
        self.assertEqual(count[0], count[1])

    def test_autocast_keeps_copies_of_weights_until_it_is_left(self):
        def loss(net, x):
            with torch.autocast("cuda", torch.bfloat16):
                net(x)
                return net(x).float().mean()

        blocks = trace(training(loss), batch=8, steps=1).blocks
        copies = [b for b in blocks if b.op == "aten::_to_copy" and b.size == 256 * 512 * 2]
        self.assertEqual(len(copies), 2)

    def test_autocast_casts_the_last_argument_first(self):
        def loss(net, x):
            with torch.autocast("cuda", torch.bfloat16):
                return net(x).float().mean()

        blocks = trace(training(loss), batch=8, steps=1).blocks
        casts = [b.size for b in blocks if b.op == "aten::_to_copy" and b.module == "0"]
        self.assertEqual(casts[:3], [512 * 2, 256 * 512 * 2, 8 * 256 * 2])

    def convolution(self, groups, strided):
        """The allocations of the backward pass of one convolution, in order."""

        def make_step():
            net = nn.Conv2d(32, 32, 3, padding=1, groups=groups, bias=False).cuda()
            x = torch.randn(4, 32, 16, 16, device="cuda", requires_grad=True)

            def step():
                y = net(x)
                y = (
                    torch.cat([y, x.detach()], 1) if strided else y
                )  # its gradient is a part of another
                (y * y).sum().backward()

            return step

        events = trace(make_step, steps=1).recorder.events
        return [e[1] for e in events if e[0] == "a" and e[1].op == "aten::convolution_backward"]

    def test_a_dense_copy_of_a_gradient_serves_input_and_filter(self):
        image, weight = 4 * 32 * 16 * 16 * 4, 32 * 32 * 9 * 4
        for strided in (False, True):
            sizes = [b.size for b in self.convolution(1, strided)]
            self.assertEqual(sizes.count(image), 1 + strided)
            self.assertEqual(sizes.count(weight), 1)

    def test_a_depthwise_convolution_makes_the_gradient_of_its_filter_first(self):
        sizes = [b.size for b in self.convolution(32, False)]
        self.assertEqual(sizes, [32 * 9 * 4, 4 * 32 * 16 * 16 * 4])

    def test_layer_norm_copies_what_does_not_lie_in_rows(self):
        for rows in (False, True):

            def make_step(rows=rows):
                x = torch.randn(4, 8, 16, device="cuda")

                def step():
                    F.layer_norm(x if rows else x.transpose(0, 1), (16,))

                return step

            sizes = [b.size for b in trace(make_step, steps=1).blocks if "layer_norm" in b.op]
            self.assertEqual(sizes, ([] if rows else [2048]) + [2048, 128, 128])

    def test_an_emptied_cache_is_in_the_trace(self):
        def loss(net, x):
            torch.cuda.empty_cache()
            return net(x).mean()

        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "run.trace")
            trace(training(loss), batch=8, steps=2).save(path)
            with open(path, encoding="utf-8") as file:
                lines = [line for line in file if line.startswith("c,")]
        self.assertEqual(lines, ["c,1000\n"] * 2)

    def recurrent(self, kind, autocast=False, **options):
        """The sizes of all blocks of a recurrent net's step: 256 steps, batch 32, 512 wide."""

        def make_step():
            net = getattr(nn, kind)(512, 512, 2, **options).cuda()
            x = torch.randn(256, 32, 512, device="cuda", requires_grad=True)

            def step():
                with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
                    y = net(x)[0]
                y.sum().backward()

            return step

        return [block.size for block in trace(make_step, steps=1).blocks]

    def test_recurrent_nets_keep_what_cudnn_kept_on_a_gpu(self):
        recorded = {
            ("LSTM",): 184549632,
            ("LSTM", "dropout"): 185073920,
            ("LSTM", "bidirectional"): 369099008,
            ("LSTM", "autocast"): 92274944,
            ("GRU",): 218104064,
        }
        for (kind, *options), kept in recorded.items():
            values = {"dropout": 0.5}
            sizes = self.recurrent(kind, **{name: values.get(name, True) for name in options})
            self.assertEqual(sizes.count(kept), 1, (kind, options))
        # The gradients of all weights lie in one buffer, as the weights do.
        self.assertEqual(self.recurrent("LSTM").count(16809984), 2)

    def test_plain_attention_adds_the_mask_in_place(self):
        def make_step():
            q = torch.randn(2, 4, 64, 32, device="cuda", requires_grad=True)
            k = torch.randn(2, 2, 64, 32, device="cuda")
            mask = torch.zeros(64, 64, device="cuda")

            def step():
                F.scaled_dot_product_attention(q, k, k, mask, enable_gqa=True).sum().backward()

            return step

        scores = 2 * 4 * 64 * 64 * 4
        blocks = [b for b in trace(make_step, steps=1).blocks if b.size == scores]
        forward = [b.op for b in blocks if b.phase == "forward"]
        self.assertEqual(forward, ["aten::bmm", "aten::_safe_softmax"])
        backward = [b.op for b in blocks if b.phase == "backward"]
        self.assertEqual(backward, ["aten::bmm"] + ["aten::_softmax_backward_data"] * 2)

    def test_dropout_keeps_a_byte_for_each_element(self):
        blocks = trace(
            training(lambda net, x: F.dropout(net(x), 0.5).mean()), batch=8, steps=1
        ).blocks
        self.assertIn(8 * 256, [b.size for b in blocks if b.op == "aten::native_dropout"])

    def test_distributed_training_has_buckets(self):
        def loss_of(wrap):
            def make_step(batch):
                net = nn.Linear(1024, 1024).cuda()
                if wrap:
                    torch.distributed.init_process_group("nccl")
                    net = nn.parallel.DistributedDataParallel(net, device_ids=[0])
                x = torch.randn(batch, 1024, device="cuda")
                return lambda: net(x).mean().backward()

            return trace(make_step, batch=8, steps=1).peak_bytes

        self.assertEqual(loss_of(True) - loss_of(False), (1024 * 1024 + 1024) * 4)

    def test_a_copy_of_a_model_is_memory_of_its_own(self):
        import copy

        def weights(copies):
            def make_step(batch):
                net = nn.Linear(1024, 1024).cuda()
                kept = [copy.deepcopy(net) for _ in range(copies)]
                return lambda: (
                    net(torch.randn(batch, 1024, device="cuda")).mean().backward(),
                    len(kept),
                )

            return trace(make_step, batch=8, steps=1).peak_bytes

        self.assertEqual(weights(2) - weights(0), 2 * (1024 * 1024 + 1024) * 4)

    def test_nothing_of_pytorch_is_changed_after_a_trace(self):
        before = (
            torch.cuda.is_available,
            torch.compile,
            torch.tensor,
            nn.parallel.DistributedDataParallel,
        )
        trace(train.make_cnn, batch=2, steps=1)
        self.assertEqual(
            before,
            (
                torch.cuda.is_available,
                torch.compile,
                torch.tensor,
                nn.parallel.DistributedDataParallel,
            ),
        )
        self.assertFalse(F.dropout(torch.ones(8), 0.5).is_cuda)


class Attention(unittest.TestCase):
    def test_a_mask_that_lies_in_columns_takes_the_plain_kernels(self):
        def kernels_of(order):
            def make_step(batch):
                query = torch.randn(batch, 4, 64, 32, device="cuda", requires_grad=True)
                mask = torch.randn(1, 4, 64, 64, device="cuda").transpose(*order).contiguous()
                mask = mask.transpose(*order)

                def step():
                    F.scaled_dot_product_attention(query, query, query, mask).sum().backward()

                return step

            return {block.op for block in trace(make_step, batch=2, steps=1).blocks}

        efficient = "aten::_scaled_dot_product_efficient_attention"
        self.assertIn(efficient, kernels_of((2, 2)))
        self.assertNotIn(efficient, kernels_of((2, 3)))


def convolution(dtype, tensor, weight, out, stride=1, padding=1, groups=1):
    pairs = (stride, stride), (padding, padding), (1, 1)
    return Convolution(dtype, tensor, weight, out, *pairs, groups, False)


class Categories(unittest.TestCase):
    def test_logits_that_autocast_converts_for_the_loss_are_no_inputs(self):
        def body(net, x):
            with torch.autocast("cuda", torch.bfloat16):
                return F.cross_entropy(net(x), torch.zeros(8, dtype=torch.int64, device="cuda"))

        traced = trace(training(body), batch=8)
        found = [
            event[1].category
            for event in traced.recorder.events
            if event[0] == "a" and event[1].op == "aten::_to_copy" and event[1].size == 8 * 256 * 4
        ]
        self.assertTrue(found)
        self.assertNotIn(INPUTS, found)


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


if __name__ == "__main__":
    unittest.main()
