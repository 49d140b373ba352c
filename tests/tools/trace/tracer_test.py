"""The tracer's promises. Runs where PyTorch is: tests/tools/trace/python_test.sh"""

import copy
import os
import sys
import tempfile
import unittest

import torch
from torch import nn
from torch.nn import functional as F

from headroom.torch import trace

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "recorded"))
import train  # noqa: E402
from small_training import training  # noqa: E402

MIB = 1 << 20
WEIGHTS, GRADIENTS, STATE, ACTIVATIONS, INPUTS, WORKSPACE, LIBRARY = range(1, 8)


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

    def test_weights_that_are_converted_were_weights_before(self):
        def make_step(batch):
            with torch.device("cuda"):
                other = nn.Linear(256, 256)
            return lambda nets=(nn.Linear(256, 256).cuda().half(), other.half()): nets

        blocks = [block for block in trace(make_step, batch=8, steps=1).blocks if block.phase == "setup"]
        self.assertEqual(sum(block.size == 256 * 256 * 4 for block in blocks), 2)
        self.assertEqual([block.category for block in blocks], [WEIGHTS] * 8)

    def test_a_number_that_where_chooses_is_a_tensor_on_the_gpu(self):
        def sizes(body):
            blocks = trace(training(body), batch=8, steps=1).blocks
            return [block.size for block in blocks if block.op == "aten::where.self"]

        result = 8 * 256 * 4
        for choice in (0.0, torch.tensor(1.0)):
            self.assertEqual(sizes(lambda net, x: torch.where(x > 0, net(x), choice).mean())[:-1], [4, result])
        self.assertEqual(sizes(lambda net, x: torch.where(x > 0, net(x), x).mean())[:-1], [result])

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

    def test_a_gradient_that_a_formula_fills_is_made_once(self):
        picked = torch.arange(64)
        formulas = {
            "index": lambda x: x[picked],
            "gather": lambda x: x.gather(0, picked[:, None].expand(64, 512)),
            "index_select": lambda x: x.index_select(0, picked),
            "take": lambda x: x.take(picked),
            "masked_select": lambda x: x.masked_select(torch.ones(512, dtype=torch.bool)),
            "max": lambda x: x.max(1)[0],
            "sort": lambda x: x.sort(1)[0],
            "cummax": lambda x: x.cummax(0)[0],
        }
        for name, formula in formulas.items():

            def make_step(batch):
                x = torch.randn(512, 512, device="cuda", requires_grad=True)

                def step():
                    formula(x).sum().backward()
                    x.grad = None

                return step

            backward = [b for b in trace(make_step, batch=1, steps=1).blocks if b.phase == "backward"]
            self.assertEqual(len([b for b in backward if b.size == 512 * 512 * 4]), 1, name)

    def test_what_a_checkpoint_computes_again_makes_its_own_results(self):
        from torch.utils.checkpoint import checkpoint

        def scattered(x):
            return torch.zeros(512, 512, device="cuda").index_add(0, torch.arange(512, device="cuda"), x).exp()

        def results(run):
            def make_step(batch):
                x = torch.randn(512, 512, device="cuda", requires_grad=True)

                def step():
                    run(x).sin().sum().backward()

                return step

            blocks = trace(make_step, batch=1, steps=1).blocks
            return len([b for b in blocks if b.op == "aten::index_add"])

        self.assertEqual(results(scattered), 1)
        self.assertEqual(results(lambda x: checkpoint(scattered, x, use_reentrant=False)), 2)

    def test_the_gradient_of_cross_entropy_with_logits_is_computed_in_place(self):
        def make_step(batch):
            x = torch.randn(512, 512, device="cuda", requires_grad=True)
            target = torch.zeros(512, 512, device="cuda")

            def step():
                F.binary_cross_entropy_with_logits(x, target).backward()

            return step

        backward = [b for b in trace(make_step, batch=1, steps=1).blocks if b.phase == "backward"]
        self.assertEqual([b.op for b in backward if b.size == 512 * 512 * 4], ["aten::sigmoid"])

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
                y = torch.cat([y, x.detach()], 1) if strided else y  # its gradient is a part of another
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
        self.assertEqual(lines, ["c,0\n"] * 2)

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

    def test_a_fourier_transform_takes_a_dense_copy_and_its_workspace(self):
        def blocks(body):
            found = trace(training(lambda net, x: body(net(x))), batch=8, steps=1).blocks
            return [block.size for block in found if block.op.startswith("aten::_fft") and block.phase == "forward"]

        images = 8 * 32 * 32 * 4  # of f32
        spectrum = 8 * 32 * 17 * 8
        wide = lambda x: x[:, :1, None].expand(8, 32, 32)
        dense = blocks(lambda x: torch.fft.irfft2(torch.fft.rfft2(wide(x).contiguous())).sum())
        self.assertEqual(dense, [spectrum, spectrum, images, spectrum, spectrum])
        strided = blocks(lambda x: torch.fft.rfft(wide(x).contiguous().transpose(1, 2)).abs().sum())
        self.assertEqual(strided, [spectrum, images, spectrum])
        of_11 = blocks(lambda x: torch.fft.fft(wide(x)[..., :11].contiguous()).abs().sum())
        self.assertEqual(of_11, [8 * 32 * 11 * 8, 2 * 8 * 32 * 11 * 8])

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

    @unittest.skipUnless(hasattr(torch.ops.aten, "_scaled_dot_product_cudnn_attention_backward"), "a later PyTorch")
    def test_the_workspaces_of_cudnn_are_those_of_a_gpu(self):
        def make(heads, keys, width=64):
            def step(batch):
                options = {"device": "cuda", "dtype": torch.bfloat16, "requires_grad": True}
                tensors = [torch.randn(batch, n, 64, width, **options) for n in (heads, keys, keys)]
                return lambda: F.scaled_dot_product_attention(*tensors, enable_gqa=heads > keys).sum().backward()

            return step

        def taken(*shape):
            blocks = trace(make(*shape), batch=2, steps=1, device="h200").blocks
            self.assertEqual(sum(b.size == 8 and "cudnn" in b.op for b in blocks), 2)  # seed and offset
            return max(b.size for b in blocks if b.op.endswith("cudnn_attention_backward"))

        # Sums, the gradient of the queries in float32, and where four heads share keys, those of keys and values.
        rows = 2 * 16 * 64
        self.assertEqual(taken(16, 16), rows * 4 * 65 + 256)
        self.assertEqual(taken(16, 4), rows * 4 * 65 + 256 + 2 * rows * 64 * 2)
        self.assertEqual(taken(16, 16, 256), rows * 4 * 257 + 256)  # on Hopper


class Embeddings(unittest.TestCase):
    def test_a_bag_takes_the_sums_of_a_gpu(self):
        def make(batch):
            bag = torch.nn.EmbeddingBag(50000, 128, mode="sum").cuda()
            words = torch.randint(50000, (batch, 32), device="cuda")
            return lambda: bag(words).sum().backward()

        blocks = trace(make, batch=1024, steps=1, device="h200").blocks
        sizes = [block.size for block in blocks if block.op.endswith("_embedding_bag_backward")]
        for size in (25600000, 549375, 288352, 18454528):  # as on an H200
            self.assertEqual(sizes.count(size), 1, size)

    def test_a_sparse_gradient_of_a_bag_has_a_row_for_each_index(self):
        def make(batch):
            bag = torch.nn.EmbeddingBag(50000, 64, mode="sum", sparse=True).cuda()
            words = torch.randint(50000, (batch * 4,), device="cuda")
            starts = torch.arange(0, batch * 4, 4, device="cuda")
            return lambda: bag(words, starts).sum().backward()

        blocks = trace(make, batch=2048, steps=1, device="h200").blocks
        forward = [block.size for block in blocks if block.op.endswith("_embedding_bag")]
        self.assertEqual(forward, [16384, 65536, 524288])  # as on an H200
        self.assertEqual([block.size for block in blocks if block.op == "aten::index_select"], [2097152])


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


if __name__ == "__main__":
    unittest.main()
