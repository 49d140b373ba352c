"""Tests torch.compile: the buffers that Inductor chooses, and functions that are traced as eager. See python_test.sh"""

import unittest
from unittest import mock

import torch
import torch.nn.functional as F
from torch import nn

from headroom.torch import trace
from headroom.torch.standin.compiled import Compiled
from small_training import training

VERSION = tuple(map(int, torch.__version__.split("+")[0].split(".")[:2]))
AS_EAGER = "is traced as eager; compiled kernels usually take less"
MATRIX, HIDDEN, OUT = 256 * 512 * 4, 64 * 512 * 4, 64 * 256 * 4  # bytes of weights, between them, of results


def blocks_of(traced, step, *phases):
    """Returns the sizes of a step's blocks in these phases, without the workspaces of libraries."""
    return [b.size for b in traced.blocks if b.step == step and b.phase in phases and b.category != 7]


def peak_of(traced, step):
    live, peak, now = 0, 0, 0
    for kind, *event in traced.recorder.events:
        if kind == "m":
            now = event[0]
        elif kind in "af":
            live += event[0].size if kind == "a" else -event[0].size
            peak = max(peak, live) if now == step else peak
    return peak


def said(traced):
    return traced.settings.get("assumed", "")


@unittest.skipIf(VERSION < (2, 11), "from PyTorch 2.11 on")
class Buffers(unittest.TestCase):
    def sizes(self, function, *phases):
        """Returns the blocks of the second step whose loss is that of `function`, and what is said."""
        made = []

        def loss(net, x):
            if not made:
                made.append(torch.compile(lambda x: function(net, x)))
            return made[0](x)

        traced = trace(training(loss), batch=64, steps=2)
        return blocks_of(traced, 2, *phases), said(traced)

    def test_a_small_net_takes_what_inductor_chooses(self):
        """The products, the activation and the loss with the sums of its parts; in the backward pass the activation's
        gradient overwrites its product's.
        """
        with mock.patch.object(Compiled, "announce") as announce:
            sizes, text = self.sizes(lambda net, x: net(x).sum(), "forward")
            self.assertEqual(announce.call_count, 1)  # not once more for the second step
        self.assertNotIn("eager", text)
        self.assertEqual(sizes, [HIDDEN, HIDDEN, OUT, 8, 4, 4])
        sizes, _ = self.sizes(lambda net, x: net(x).sum(), "backward")
        self.assertEqual(sizes, [OUT, HIDDEN, MATRIX, 256 * 4, 512 * 4, MATRIX])

    def test_buffers_are_used_again(self):
        def chain(net, x):
            with torch.no_grad():
                for _ in range(4):
                    x = torch.relu(x @ net[2].weight[:, :256])
            return net(x).sum()

        sizes, _ = self.sizes(chain, "forward")
        self.assertEqual(sizes.count(OUT), 2)

    def test_halves_where_autocast_is_on(self):
        def loss(net, x):
            return net(x).sum()

        def with_autocast(net, x):
            with torch.autocast("cuda", torch.bfloat16):
                return made(net, x)

        made = torch.compile(loss)
        traced = trace(training(with_autocast), batch=64, steps=2)
        self.assertNotIn("eager", said(traced))
        self.assertIn(HIDDEN // 2, blocks_of(traced, 2, "forward"))
        self.assertNotIn(HIDDEN, blocks_of(traced, 2, "forward"))

    def test_attention_makes_no_scores(self):
        def attention(net, x):
            q = net(x).view(8, 8, 4, 64).transpose(1, 2).to(torch.bfloat16)
            return F.scaled_dot_product_attention(q, q, q, dropout_p=0.1).float().sum()

        for device in ("h200", "a100-80gb", "rtx-3090"):
            traced = trace(training(lambda net, x: torch.compile(attention)(net, x)), batch=64, steps=1, device=device)
            self.assertNotIn("eager", said(traced), device)
            self.assertFalse({8 * 4 * 8 * 8 * size for size in (2, 4)} & {*blocks_of(traced, 1, "forward", "backward")})

    def test_products_of_odd_sizes_are_padded(self):
        """In single precision the gradient of words, whose sums are odd, is padded by two; the logits are not."""
        words, rows = 3002, 1024

        def make_step():
            head = nn.Linear(1024, words, bias=False).cuda()
            x = torch.randn(rows, 1024, device="cuda", requires_grad=True)
            targets = torch.zeros(rows, dtype=torch.long, device="cuda")
            loss = torch.compile(lambda: F.cross_entropy(head(x), targets))
            return lambda: loss().backward()

        traced = trace(make_step, steps=2)  # without TF32 nearly all products are bound by computing
        self.assertEqual(said(traced), "")
        self.assertNotIn((words + 2) * 1024 * 4, blocks_of(traced, 2, "forward"))
        self.assertIn((words + 2) * 1024 * 4, blocks_of(traced, 2, "backward"))

    def test_kernels_with_functions_of_their_own(self):
        traced = trace(training(lambda net, x: torch.compile(lambda x: net(x).cumsum(-1).sum())(x)), batch=64, steps=1)
        self.assertEqual(said(traced), "")

    def test_a_first_run_times_kernels(self):
        traced = trace(training(lambda net, x: torch.compile(net)(x).sum()), batch=64, steps=2)
        timed = [block.size for block in traced.blocks if block.op.startswith("triton::")]
        self.assertGreater(timed.count(60 << 20), 0)
        self.assertEqual({block.step for block in traced.blocks if block.op.startswith("triton::")}, {1})

    def test_flexible_attention_with_a_mask(self):
        from torch.nn.attention import flex_attention as flex

        def attention(net, x):
            mask = flex.create_block_mask(lambda b, h, q, k: q >= k, None, None, 1024, 1024, device="cuda")
            q = net(x).view(1, 1, 1024, 16)
            return torch.compile(flex.flex_attention)(q, q, q, block_mask=mask).sum()

        traced = trace(training(attention), batch=64, steps=1)
        self.assertEqual(said(traced), "")
        sizes = blocks_of(traced, 1, "forward", "backward")
        self.assertEqual(sizes.count(1024 * 4), 3)  # sums and maxima of rows, and one more in the backward pass

    def test_modules_parts_and_graph_breaks(self):
        def broken(net, x):
            y = net[1](net[0](x))
            torch._dynamo.graph_break()
            return net[2](y).sum()

        eager = trace(training(broken), batch=64, steps=2)
        for make in (lambda net: net, lambda net: nn.Sequential(torch.compile(net[0]), net[1], torch.compile(net[2]))):
            for body in (broken, torch.compile(broken), torch.compile(broken, dynamic=True)):
                traced = trace(training(lambda net, x: body(make(net), x)), batch=64, steps=2)
                self.assertNotIn("eager", said(traced))
                self.assertLessEqual(peak_of(traced, 2), peak_of(eager, 2) + HIDDEN)

    def test_a_module_compiled_in_place(self):
        def in_place(net, x):
            net.compile()
            return net(x).sum()

        traced = trace(training(in_place), batch=64, steps=2)
        self.assertNotIn("eager", said(traced))
        self.assertEqual(blocks_of(traced, 2, "forward").count(HIDDEN), 2)


class AsEager(unittest.TestCase):
    def assert_as_eager(self, body, text):
        traced = trace(training(body), batch=8)
        self.assertIn(AS_EAGER, said(traced))
        self.assertIn(text, said(traced))
        return traced

    def test_what_cannot_be_compiled_is_named(self):
        def weighted(net, x):
            return net(x).mean()

        def compiled_weighted(net, x):
            return torch.compile(weighted)(net, x)

        def refuse(*_):
            raise RuntimeError("no kernel\nat all")

        with mock.patch.object(Compiled, "announce", refuse):
            text = "weighted" if VERSION >= (2, 11) else "torch.compile"
            traced = self.assert_as_eager(compiled_weighted, text)
        self.assertEqual(traced.peak_bytes, trace(training(weighted), batch=8).peak_bytes)

    def test_other_backends_are_named(self):
        self.assert_as_eager(lambda net, x: torch.compile(net, backend="cudagraphs")(x).mean(), "(backend cudagraphs)")

    @unittest.skipIf(VERSION < (2, 11), "from PyTorch 2.11 on")
    def test_a_value_of_what_is_compiled_is_computed_as_eager(self):
        def choice(net, x):
            y = torch.compile(lambda x: net(x).softmax(-1))(x)
            return y[:, : 1 + int(y.detach().argmax()) % 7].mean()

        self.assert_as_eager(choice, "torch.compile")

    @unittest.skipIf(VERSION < (2, 11), "from PyTorch 2.11 on")
    def test_pools_of_graphs_are_said_to_be_left_out(self):
        for mode in ("reduce-overhead", "max-autotune"):
            traced = trace(training(lambda net, x: torch.compile(net, mode=mode)(x).mean()), batch=8)
            left_out = f"torch.compile(mode='{mode}') is traced without what a pool of CUDA graphs keeps"
            self.assertIn(left_out, said(traced))


if __name__ == "__main__":
    unittest.main()
