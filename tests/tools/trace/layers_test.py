"""Layers that look at values, or that make tensors of their own kinds. See python_test.sh"""

import copy
import importlib.util
import math
import unittest

import torch
from torch import nn
from torch.nn import functional as F

from headroom.torch import trace
from small_training import refusal, training, unknown


def peak(make_step, batch=8):
    return trace(make_step, batch=batch, steps=2).peak_bytes


class LazyModules(unittest.TestCase):
    def test_take_what_those_with_shapes_take(self):
        def program(layers, dry=False, moved=True, copies=False):
            def make_step(batch):
                net = nn.Sequential(*layers())
                if dry:
                    net(torch.randn(2, 3, 32, 32))
                net = net.cuda() if moved else net
                net = copy.deepcopy(net) if copies else net
                x = torch.randn(batch, 3, 32, 32, device="cuda")
                optimizer = torch.optim.AdamW(net.parameters())

                def step():
                    optimizer.zero_grad()
                    net(x).sum().backward()
                    optimizer.step()

                return step

            return make_step

        def with_shapes(device=None):
            norm, last = nn.BatchNorm2d(16, device=device), nn.Linear(14400, 10, device=device)
            return nn.Conv2d(3, 16, 3, device=device), norm, nn.Flatten(), last

        def lazy(device=None):
            norm, last = nn.LazyBatchNorm2d(device=device), nn.LazyLinear(10, device=device)
            return nn.LazyConv2d(16, 3, device=device), norm, nn.Flatten(), last

        expected = peak(program(with_shapes))
        self.assertEqual(peak(program(lazy)), expected)
        self.assertEqual(peak(program(lazy, dry=True)), expected)
        self.assertLess(abs(peak(program(lazy, copies=True)) - expected), 16)  # a number is kept
        self.assertEqual(peak(program(lambda: lazy("cuda"), moved=False)), expected)


class Masks(unittest.TestCase):
    @unittest.skipIf(importlib.util.find_spec("transformers") is None, "no Transformers")
    def test_that_hide_nothing_are_left_out_by_transformers(self):
        from transformers import BertConfig, BertModel, GPT2Config, GPT2Model

        configs = (
            (BertModel, BertConfig(num_hidden_layers=1, hidden_size=64, num_attention_heads=2)),
            (GPT2Model, GPT2Config(n_layer=1, n_embd=64, n_head=2)),
        )

        def masks(kind, config, mask_of):
            """Blocks with an element for each pair of tokens."""

            def make_step(batch):
                net = kind(config).cuda()
                tokens = torch.randint(1, 1000, (batch, 512), device="cuda")
                return lambda: net(tokens, attention_mask=mask_of(tokens))[0].sum().backward()

            blocks = trace(make_step, batch=256, steps=1).blocks
            return [b.op for b in blocks if b.size == 256 * 512 * 512]

        for kind, config in configs:
            self.assertTrue(masks(kind, config, lambda x: unknown(x) != 0))
            self.assertTrue(masks(kind, config, lambda x: x != x[0, 0]))
            self.assertFalse(masks(kind, config, lambda x: x != 0))
            self.assertFalse(masks(kind, config, torch.ones_like))
            self.assertFalse(masks(kind, config, lambda x: None))

    def test_of_padding_make_no_nested_tensors_of_an_encoder(self):
        def make_step(batch):
            layer = nn.TransformerEncoderLayer(64, 4, batch_first=True)
            net = nn.TransformerEncoder(layer, 2).cuda().eval()
            x = torch.randn(batch, 128, 64, device="cuda")
            padding = torch.zeros(batch, 128, dtype=torch.bool, device="cuda")

            @torch.no_grad()
            def step():
                assert net(x, src_key_padding_mask=padding).shape == x.shape

            return step

        self.assertGreater(peak(make_step), 0)


class CtcLoss(unittest.TestCase):
    def blocks_of(self, lengths, targets=None):
        steps, batch, longest = 50, 8, 10

        def make_step():
            x = torch.randn(steps, batch, 20, device="cuda", requires_grad=True)
            made = targets or (lambda: torch.randint(1, 20, (batch, longest), device="cuda"))

            def step():
                F.ctc_loss(x.log_softmax(2), made(), (steps,) * batch, lengths(batch)).backward()

            return step

        size = batch * steps * (2 * longest + 1) * 4
        return [b.op for b in trace(make_step, steps=1).blocks if b.size == size]

    def test_keeps_a_table_of_its_steps_and_longest_target(self):
        for lengths in (
            lambda batch: (10,) * batch,
            lambda batch: torch.full((batch,), 10),
            lambda batch: torch.arange(batch, device="cuda") + 3,
            lambda batch: unknown(torch.ones(batch, device="cuda")).long(),
        ):
            self.assertEqual(len(self.blocks_of(lengths)), 2)
        self.assertEqual(len(self.blocks_of(lambda batch: (9,) * batch)), 0)

    def test_is_refused_where_nothing_tells_the_longest_target(self):
        with self.assertRaisesRegex(Exception, r"^layers_test\.py:\d+: .*ctc_loss\(\) of targets"):
            self.blocks_of(
                lambda batch: unknown(torch.ones(batch, device="cuda")).long(),
                lambda: torch.randint(1, 20, (80,), device="cuda"),
            )


class Refusals(unittest.TestCase):
    def assert_refused(self, body, text):
        self.assertRegex(refusal(lambda net, x: body(x)), rf"^layers_test\.py:\d+: {text}")

    def test_name_the_function_that_the_program_calls(self):
        length = "needs the value of a tensor"
        for body, text in (
            (lambda x: F.one_hot(unknown(x).argmax(1)), rf"one_hot\(\) {length}"),
            (lambda x: torch.arange(unknown(x).argmax()), rf"arange\(\) {length}"),
            (lambda x: torch.nested.nested_tensor([x[:2, :3], x[:3, :5]]), "this nested .* has no form .*; pad it to"),
        ):
            self.assert_refused(body, text)

    @unittest.skipIf(importlib.util.find_spec("torch.nn.attention.flex_attention") is None, "from PyTorch 2.5 on")
    def test_flexible_attention_makes_no_scores(self):
        flex = importlib.import_module("torch.nn.attention.flex_attention")

        def make_step():
            net = nn.Linear(64, 32).cuda()
            mask = flex.create_block_mask(lambda b, h, q, k: q >= k, None, None, 512, 512, device="cuda")

            def step():
                q = net(torch.ones(2, 4, 512, 64, device="cuda"))
                flex.flex_attention(q, q, q, block_mask=mask).sum().backward()

            return step

        traced = trace(make_step, steps=1)
        sizes = [block.size for block in traced.blocks if block.step == 1]
        self.assertNotIn(2 * 4 * 512 * 512 * 4, sizes)
        self.assertEqual(sizes.count(2 * 4 * 512 * 4), 2)  # sums of rows, forward and backward
        self.assertIn("flex_attention is traced as compiled", traced.settings["assumed"])


class ConditionsOnFiniteness(unittest.TestCase):
    def assert_traced(self, body):
        self.assertGreater(trace(training(body), batch=8, steps=1).peak_bytes, 0)

    def test_are_those_of_a_training_that_goes_on(self):
        def body(net, x):
            y = net(x)
            loss = y.mean()
            for bad in (
                torch.isnan(loss),
                torch.isnan(y).any(),
                y.isinf().any().item(),
                (torch.isnan(y) | torch.isinf(y)).any().cpu(),
                torch.logical_or(y.isnan(), y.isinf()).any(dim=1).any(),
                ~torch.isfinite(y).all(),
                not torch.isfinite(loss),
                torch.stack([y.isnan().any(), x.isnan().any()]).any(),
            ):
                self.assertFalse(bad)
            nn.utils.clip_grad_norm_(net.parameters(), 1.0, error_if_nonfinite=True)
            return loss

        self.assert_traced(body)

    def test_make_no_data_known_and_forget_what_is_written(self):
        def written(y):
            bad = torch.isnan(y)
            bad[0] = True
            return bad.any()

        def joined(y):
            bad = torch.isnan(y).any()
            bad |= (y > 0).any()
            return bad

        for condition in (written, joined):
            text = refusal(lambda net, x: net(x).mean() if condition(unknown(x)) else 0)
            self.assertRegex(text, r"^layers_test\.py:\d+: a condition on a tensor")
        text = refusal(lambda net, x: x[~torch.isnan(unknown(x))].mean())
        self.assertRegex(text, r"^layers_test\.py:\d+: index needs the value")

    def test_of_known_values_are_what_they_are(self):
        def body(net, x):
            self.assertTrue(torch.isinf(torch.full((2,), math.inf)).all())
            return net(x).mean()

        self.assert_traced(body)


class Sparse(unittest.TestCase):
    """Sparse tensors in coordinates."""

    def test_gradients_of_embeddings_have_the_rows_that_were_used(self):
        for layer in (nn.Embedding, nn.EmbeddingBag):
            for kind in (torch.optim.SGD, torch.optim.SparseAdam):

                def make_step():
                    table = layer(10_000, 64, sparse=True).cuda()
                    optimizer = kind(table.parameters(), lr=0.1)
                    rows = torch.arange(200, device="cuda").view(2, 100) % 150

                    def step():
                        optimizer.zero_grad()
                        table(rows).sum().backward()
                        self.assertTrue(table.weight.grad.is_sparse)
                        self.assertEqual(table.weight.grad._nnz(), 200)
                        self.assertEqual(table.weight.grad.coalesce()._nnz(), 150)
                        optimizer.step()

                    return step

                blocks = trace(make_step, steps=2).blocks
                dense = sum(block.size == 10_000 * 64 * 4 for block in blocks)
                self.assertEqual(dense, 1 if kind is torch.optim.SGD else 3)

    def test_graphs_are_multiplied_without_a_dense_matrix(self):
        def make_step():
            edges = torch.arange(600).view(2, 300) % 100
            graph = torch.sparse_coo_tensor(edges, torch.ones(300), (100, 100)).coalesce()
            degrees = torch.sparse.sum(graph, 1).to_dense()
            graph = (torch.diag(1 / degrees.clamp(min=1)).to_sparse() @ graph).cuda()
            net = nn.Linear(8, 100_000).cuda()
            x = torch.randn(100, 8, device="cuda")

            def step():
                for product in (torch.sparse.mm, torch.mm, torch.spmm):
                    product(graph, net(x)).sum().backward()

            return step

        sizes = [block.size for block in trace(make_step, steps=1).blocks]
        self.assertIn(100 * 100_000 * 4, sizes)
        self.assertNotIn(100 * 100 * 4, sizes)

    def test_a_product_holds_zeros_the_result_and_one_by_columns(self):
        def make_step():
            edges = torch.arange(600).view(2, 300) % 100
            graph = torch.sparse_coo_tensor(edges, torch.ones(300), (100, 100)).coalesce().cuda()
            x = torch.randn(100, 100_000, device="cuda")

            def step():
                for product in (torch.sparse.mm, torch.mm):
                    y = product(graph, x)
                    assert not torch.isnan(y / y.sum(0)).any(), "its values are unknown, and no zeros"

            return step

        traced = trace(make_step, steps=1)
        self.assertAlmostEqual(traced.peak_bytes, 5 * 100 * 100_000 * 4, delta=1 << 20)

    def test_those_in_rows_are_multiplied_as_they_lie(self):
        def make_step():
            edges = torch.arange(300).repeat(2, 1) % 100
            graph = torch.sparse_coo_tensor(edges, torch.ones(300), (100, 100)).coalesce()
            weights = nn.Linear(8, 100_000)
            weights.register_buffer("graph", graph.to_sparse_csr())
            weights.cuda()
            pointers = torch.arange(101, device="cuda")
            made = torch.sparse_csr_tensor(pointers, pointers[:100], torch.ones(100, device="cuda"), (100, 100))
            x = torch.randn(100, 8, device="cuda")

            def step():
                for matrix in (weights.graph, made, graph.cuda().to_sparse_csr()):
                    self.assertEqual((matrix.layout, matrix.device.type), (torch.sparse_csr, "cuda"))
                    for product in (torch.sparse.mm, torch.mm):
                        product(matrix, weights(x)).sum().backward()

            return step

        traced = trace(make_step, steps=1)
        product = 100 * 100_000 * 4  # its argument and its result, zeros to which it is added, and a gradient
        self.assertLess(traced.peak_bytes - 65 * (1 << 20), 4 * product)
        self.assertGreater(traced.peak_bytes, 3 * product)
        self.assertNotIn(100 * 100 * 4, [block.size for block in traced.blocks])

    def test_two_are_multiplied_by_the_places_of_both(self):
        def make_step():
            places = torch.tensor([[0, 0, 3, 9], [1, 2, 1, 9]])
            data = torch.sparse_coo_tensor(places, torch.ones(4), (1000, 10))
            graph = data.cuda()

            def step():
                for other in (graph.t(), graph.t().coalesce(), graph.coalesce().t()):
                    for product in (graph @ other, torch.sparse.mm(graph, other), torch.mm(graph, other)):
                        self.assertEqual(product.indices().tolist(), torch.sparse.mm(data, data.t()).indices().tolist())
                        self.assertEqual((product.shape, product._nnz()), ((1000, 1000), 5))

            return step

        sizes = [block.size for block in trace(make_step, steps=1).blocks]
        self.assertEqual(sizes.count(1001 * 4), 2 * 9)  # where the rows begin, in an operand and the result
        self.assertNotIn(1000 * 1000 * 4, sizes)

    def test_products_are_computed_where_they_choose_something(self):
        places = torch.arange(600).view(2, 300) % 97
        data = torch.sparse_coo_tensor(places, torch.ones(300), (100, 100)), (torch.arange(800.0) * 7 % 31).view(100, 8)

        def products(graph, table):
            for matrix in (graph, graph.coalesce(), graph.to_sparse_csr(), graph.to_sparse_csr().t()):
                for product in (matrix @ table, torch.addmm(table, matrix, matrix @ table), matrix.to_dense()):
                    yield product.detach().cpu().numpy().tolist(), product.topk(3)[1].cpu().numpy().tolist()

        def make_step():
            weights = nn.Parameter(data[1].cuda())
            graph = torch.sparse_coo_tensor(places, torch.ones(300), (100, 100)).cuda()
            return lambda: seen.extend(products(graph, weights))

        seen = []
        trace(make_step, steps=1)
        self.assertEqual(seen, list(products(*data)))

    def test_tensors_of_inference_may_become_sparse_outside_of_it(self):
        def body(net, x):
            with torch.inference_mode():
                y = torch.arange(64.0, device="cuda").view(8, 8) % 3
            self.assertEqual(y.to_sparse()._nnz(), 42)
            return net(x).mean()

        self.assertEqual(refusal(body), "")


class Nested(unittest.TestCase):
    """Nested tensors with a ragged dimension."""

    def test_take_what_their_rows_take(self):
        def training_of(rows, dtype):
            embed, net, out = nn.Embedding(100, 64), nn.Linear(64, 192), nn.Linear(64, 16)
            parts = nn.ModuleList([embed, net, out]).cuda()
            optimizer = torch.optim.SGD(parts.parameters(), 0.1)

            def step():
                optimizer.zero_grad()
                x = embed(rows())
                with torch.autocast("cuda", torch.bfloat16, enabled=dtype is torch.bfloat16):
                    heads = [part.unflatten(-1, (4, 16)).transpose(1, 2) for part in net(x).chunk(3, -1)]
                    y = F.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(-2)
                    y = out(torch.relu(y) + x)
                y = y.to_padded_tensor(0.0) if y.is_nested else y
                y.float().square().mean().backward()
                optimizer.step()

            return step

        def ragged(**layout):
            rows = [torch.arange(length) for length in (512, 512, 512)]
            return torch.nested.nested_tensor(rows, **layout).cuda() % 100

        for dtype in (torch.float32, torch.bfloat16):
            nested = trace(lambda: training_of(lambda: ragged(layout=torch.jagged), dtype), steps=2).peak_bytes
            strided = trace(lambda: training_of(ragged, dtype), steps=2)
            self.assertEqual(strided.peak_bytes, nested)
            self.assertIn("as with layout=torch.jagged", strided.settings["assumed"])
            dense = trace(lambda: training_of(lambda: torch.arange(1536).view(3, 512).cuda() % 100, dtype), steps=2)
            self.assertLess(abs(nested / dense.peak_bytes - 1), 0.02)


class RecurrentNets(unittest.TestCase):
    """Workspaces that PyTorch 2.11 asked for on an H200 (cuDNN 9.14)."""

    def workspaces(self, kind, dtype, layers, directions, inputs, hidden, steps, batch, packed=False, dropout=0.0):
        def make_step():
            options = {"bidirectional": directions == 2, "dropout": dropout}
            net = getattr(nn, kind)(inputs, hidden, layers, **options).cuda().to(dtype)
            x = torch.randn(steps, batch, inputs, device="cuda", dtype=dtype)
            if packed:
                lengths = torch.tensor([steps - index * steps // (2 * batch) for index in range(batch)])
                x = nn.utils.rnn.pack_padded_sequence(x, lengths)

            def step():
                y = net(x)[0]
                (y.data if packed else y).sum().backward()

            return step

        return {block.size for block in trace(make_step, steps=1).blocks if block.op == "aten::_cudnn_rnn"}

    def test_take_the_workspace_of_cudnn(self):
        f32, f16, bf16 = torch.float32, torch.float16, torch.bfloat16
        recorded = {
            ("LSTM", f32, 1, 1, 300, 100, 35, 20): 15845024,
            ("LSTM", f32, 2, 1, 256, 256, 50, 64): 41943808,
            ("LSTM", f32, 2, 1, 256, 256, 50, 64, False, 0.5): 45220608,
            ("LSTM", f32, 2, 2, 128, 128, 35, 20): 47655328,
            ("LSTM", f16, 2, 1, 256, 256, 50, 64): 29360896,
            ("LSTM", bf16, 1, 1, 300, 100, 35, 20): 10433024,
            ("GRU", f32, 2, 1, 256, 256, 50, 64): 38011648,
            ("GRU", f32, 1, 2, 300, 100, 35, 20): 28489632,
            ("GRU", f32, 2, 1, 256, 256, 50, 64, True): 27824384,
            ("RNN", f32, 1, 1, 128, 128, 35, 20, True): 9086208,
            ("RNN", f32, 2, 2, 256, 256, 50, 64): 113378048,
        }
        for net, size in recorded.items():
            nearest = min(self.workspaces(*net), key=lambda found: abs(found - size))
            self.assertLessEqual(abs(nearest - size), 256, net)

    def test_keep_the_random_numbers_of_dropout(self):
        def sizes(dropout):
            def make_step():
                net = nn.LSTM(64, 64, 2, dropout=dropout).cuda()
                x = torch.randn(8, 4, 64, device="cuda")
                return lambda: net(x)[0].sum().backward()

            return [block.size for block in trace(make_step, steps=2).blocks if block.op == "cuDNN dropout"]

        self.assertEqual(sizes(0.5), [6488064])  # of an H200: 24 bytes for each thread
        self.assertEqual(sizes(0.0), [])

    def test_keep_the_bits_of_dropout_for_packed_sequences_as_if_they_were_padded(self):
        def make_step():
            net = nn.LSTM(256, 512, 2, dropout=0.3, bidirectional=True).cuda()
            lengths = torch.tensor([60] + [36] * 63)
            x = torch.randn(60, 64, 256, device="cuda")
            x = nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
            return lambda: net(x)[0].data.sum().backward()

        rows = 60 + 36 * 63
        kept = rows * 512 * 4 * 2 * (2 * 5 + 1) + 256 + 60 * 64 * 2 * 2 * 512 // 8
        self.assertIn(kept, {block.size for block in trace(make_step, steps=1).blocks})

    def test_cells_are_one_kernel_that_keeps_both_products(self):
        for kind, kept in (("LSTMCell", 4 + 4 + 4 + 1 + 1), ("GRUCell", 3 + 3 + 5 + 1)):
            live = []

            def make_step():
                cell = getattr(nn, kind)(32, 64).cuda()
                x = torch.randn(16, 32, device="cuda")

                def step():
                    before = torch.cuda.memory_allocated()
                    y = cell(x)
                    live.append(torch.cuda.memory_allocated() - before)
                    (y[0] if kind == "LSTMCell" else y).sum().backward()

                return step

            trace(make_step, steps=2)
            zeros = 1  # with which a cell begins
            self.assertEqual(live[-1], (kept + zeros) * 16 * 64 * 4, kind)


if __name__ == "__main__":
    unittest.main()
