"""Changes that the tracer makes take what the program takes that a person has changed. See python_test.sh"""

import unittest
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from headroom.torch import TraceError
from headroom.torch.answers import describe
from headroom.torch.changes import Changes
from headroom.torch.costs import Speed
from headroom.torch.session import trace_loaded

SPEED = Speed(1e6, 2e6, 1e6, 1e4, 2)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        return x + self.mlp(self.norm(x))


class Net(nn.Module):
    def __init__(self, width=256, layers=4):
        super().__init__()
        self.layers = nn.ModuleList(Block(width) for _ in range(layers))
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def program(by_hand="", passes=1):
    """A training as a person writes it, with one change made by hand."""

    def make_step(batch):
        net = Net().cuda()
        if by_hand == "checkpoints":
            for layer in net.layers[:3]:
                layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
        fused = by_hand == "fused"
        optimizer = torch.optim.AdamW(net.parameters(), fused=fused)
        images = torch.randn(batch, 64, 256, device="cuda")
        labels = torch.randint(0, 10, (batch * 64,), device="cuda")

        def loss():
            return F.cross_entropy(net(images).flatten(0, 1), labels)

        def step():
            optimizer.zero_grad()
            for _ in range(passes):
                if by_hand == "autocast":
                    with torch.autocast("cuda", torch.bfloat16):
                        value = loss()
                elif by_hand == "offload":
                    with torch.autograd.graph.save_on_cpu(pin_memory=True):
                        value = loss()
                else:
                    value = loss()
                value.backward()
            optimizer.step()

        return step

    return make_step


def run(make_step, batch=8, **changes):
    changes = Changes.of(changes)
    return trace_loaded(lambda: make_step, batch, 3, "rtx-3090", "x", changes, SPEED)


def sizes(trace):
    return [event[1].size if event[0] in "af" else event[0] for event in trace.recorder.events]


LAYERS = ["layers.0", "layers.1", "layers.2"]


class MadeByTheTracer(unittest.TestCase):
    def test_checkpoints_autocast_offload_and_fused_take_what_they_take_by_hand(self):
        for by_hand, changes in {
            "checkpoints": {"checkpoints": LAYERS, "model": "Net"},
            "autocast": {"autocast": "bf16"},
            "offload": {"offload": True},
            "fused": {"fused": True},
        }.items():
            expected = run(program(by_hand))
            changed = run(program(), **changes)
            self.assertEqual(changed.peak_bytes, expected.peak_bytes, by_hand)
            self.assertNotEqual(sizes(changed), sizes(run(program())), by_hand)

    def test_parts_of_a_batch_take_what_they_take_by_hand(self):
        for passes in (2, 4):
            expected = run(program(passes=passes), batch=8 // passes)
            changed = run(program(), batch=8 // passes, passes=passes)
            self.assertEqual(changed.peak_bytes, expected.peak_bytes)
            self.assertLess(changed.peak_bytes, run(program()).peak_bytes)

    def test_a_loss_in_parts_takes_what_it_takes_by_hand(self):
        def program(by_hand=False, **options):
            def make_step(batch):
                net = Net().cuda()
                net.head = nn.Linear(256, 10_000).cuda()
                optimizer = torch.optim.SGD(net.parameters())
                images = torch.randn(batch, 64, 256, device="cuda")
                labels = torch.randint(0, 10_000, (batch, 64), device="cuda")

                def part(x, wanted):
                    return F.cross_entropy(net.head(x), wanted, reduction="sum")

                def step():
                    optimizer.zero_grad()
                    if by_hand:
                        x = images
                        for layer in net.layers:
                            x = layer(x)
                        parts = zip(x.flatten(0, -2).chunk(8), labels.flatten().chunk(8))
                        total = sum(checkpoint(part, *both, use_reentrant=False) for both in parts)
                        loss = total / labels.numel()
                    else:
                        loss = F.cross_entropy(net(images).flatten(0, 1), labels.flatten(), **options).mean()
                    loss.backward()
                    optimizer.step()

                return step

            return make_step

        plain = run(program())
        self.assertEqual(describe(plain)["head"], "head")
        changed = run(program(), loss_parts=8, head="head")
        self.assertAlmostEqual(changed.peak_bytes, run(program(True)).peak_bytes, delta=1024)  # what stands for logits
        self.assertLess(changed.peak_bytes, 0.8 * plain.peak_bytes)
        with self.assertRaisesRegex(TraceError, "cannot be made in parts"):
            run(program(reduction="none"), loss_parts=8, head="head")
        with self.assertRaisesRegex(TraceError, "no loss takes the results"):
            run(program(), loss_parts=8, head="layers.0.mlp.0")

    def test_gradients_are_summed_up_and_one_step_is_taken(self):
        seen = []

        def make_step(batch):
            net = nn.Linear(16, 16).cuda()
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            optimizer.register_step_post_hook(lambda *_: seen.append("step"))

            def step():
                net(torch.randn(batch, 16, device="cuda")).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
                seen.append(net.weight.grad is None)

            return step

        trace_loaded(lambda: make_step, 2, 1, "rtx-3090", "x", Changes(passes=3))
        self.assertEqual(seen, [False, False, "step", True])

    def test_a_change_that_is_none_is_refused(self):
        for changes in ({"passes": 0}, {"autocast": "f8"}, {"color": 1}):
            with self.assertRaises(TraceError):
                Changes.of(changes)
        with self.assertRaises(TraceError):
            run(program(), checkpoints=["nothing"], model="Net")


class Costs(unittest.TestCase):
    def test_modules_that_run_again_take_their_time_twice(self):
        plain, again = run(program()), run(program(), checkpoints=LAYERS, model="Net")
        known = describe(plain)
        forward = sum(m["us"] for m in known["modules"] if m["path"].startswith(tuple(LAYERS)))
        self.assertEqual(known["model"], "Net")
        self.assertEqual(known["name"], "net")
        difference = describe(again)["us_per_step"] - known["us_per_step"]
        self.assertGreater(difference, 0.4 * forward)  # it stops at the last that is needed
        self.assertLess(difference, 1.1 * forward)

    def test_copies_to_the_host_and_back_take_the_time_of_the_link(self):
        plain, copied = run(program()), run(program(), offload=True)
        self.assertGreater(describe(copied)["us_per_step"], 1.5 * describe(plain)["us_per_step"])


class Copies(unittest.TestCase):
    def test_a_slice_sent_to_the_gpu_takes_the_slice(self):
        def make_step(batch):
            net = nn.Linear(64, 64).cuda()
            data = torch.randn(1000, 64)

            def step():
                net(data[:batch].cuda()).sum().backward()

            return step

        trace = run(make_step, 8)
        self.assertIn(8 * 64 * 4, [block.size for block in trace.blocks])
        self.assertNotIn(1000 * 64 * 4, [block.size for block in trace.blocks])

    def test_a_copy_into_the_host_takes_nothing_of_the_gpu(self):
        def make_step(batch):
            kept = torch.empty(batch, 1024)

            def step():
                kept.copy_(torch.randn(batch, 1024, device="cuda"))

            return step

        trace = run(make_step, 8)
        live = [block for block in trace.blocks if block.is_live and block.phase == "forward"]
        self.assertEqual(live, [])


if __name__ == "__main__":
    unittest.main()
