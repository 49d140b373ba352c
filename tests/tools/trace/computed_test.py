"""Tests which values a trace computes: those of data, and those of a model where they decide a size or a branch
(headroom/torch/values.py, recipes.py, branches.py). See python_test.sh
"""

import copy
import math
import os
import tempfile
import unittest
from unittest import mock

import numpy
import torch
from torch import nn

from headroom.torch import TraceError, computing, recipes, trace
from headroom.torch.session import trace_loaded
from headroom.torch.standin import tensors
from headroom.torch.values import KnownValues
from small_training import refusal, training, unknown


def sizes_of(body, op, compute="auto", steps=1):
    """The sizes of the blocks that an op of a small training's loss makes in the forward pass."""
    blocks = trace(training(body), batch=8, steps=steps, compute=compute).blocks
    return [b.size for b in blocks if b.op == op and b.phase == "forward"]


class Data(unittest.TestCase):
    def test_says_how_many_elements_a_mask_chooses(self):
        def body(net, x):
            rows = torch.arange(8, device="cuda")
            return net(x[rows % 2 == 0]).mean() + x.masked_select(x == x).mean()

        self.assertIn(4 * 256 * 4, sizes_of(body, "aten::index.Tensor"))
        self.assertIn(8 * 256 * 4, sizes_of(body, "aten::masked_select"))

    def test_keeps_its_values_on_the_gpu_and_back(self):
        lengths = [3, 1, 4, 1, 5]

        def body(net, x):
            moved = torch.tensor(lengths).cuda()
            self.assertEqual(moved.tolist(), lengths)
            self.assertEqual(moved.cpu().numpy().tolist(), lengths)
            self.assertEqual([int(n) for n in moved], lengths)
            self.assertEqual(moved.bincount().tolist(), [0, 2, 0, 1, 1, 1])
            self.assertEqual(moved.unique().numel(), 4)
            self.assertEqual(x.new_zeros(moved.max()).numel(), 5)
            self.assertEqual(torch.arange(5, device="cuda").repeat_interleave(moved).numel(), 14)
            self.assertTrue(moved.max().item() == 5 and 4 in moved and not 2 in moved)
            return net(x).mean()

        trace(training(body), batch=8, steps=1)

    def test_may_be_copied_with_all_that_has_it(self):
        def body(net, x):
            data = {"lengths": torch.tensor([3, 1])}
            copied = copy.deepcopy(data)
            data["lengths"][0] = 5
            self.assertEqual(copied["lengths"].tolist(), [3, 1])
            return net(x).mean()

        trace(training(body), batch=8, steps=1)

    def test_that_is_written_in_place_has_its_new_values(self):
        def body(net, x):
            table = torch.zeros(100, 100, device="cuda")
            column = table[:, 3]
            column += 2
            table[5] = torch.ones(100, device="cuda")
            table[7, 2:4].fill_(4)
            table.clamp_(max=3)
            self.assertEqual(table.sum().item(), 2 * 98 + 100 + 3 * 2)
            self.assertEqual(column[6].item(), 2)
            return net(x).mean()

        trace(training(body), batch=8, steps=1)

    def test_that_is_filled_element_by_element_is_written_at_once(self):
        def body(net, x):
            table = torch.zeros(3, 4)
            row = table[1]
            ops = []
            with mock.patch.object(KnownValues, "run", lambda *_: ops.append(1)):
                row[2], table[0], table[2, 1:3], table[-1, -1] = 5, True, 7.5, 1
            self.assertEqual(ops, [])
            doubled = table * 2
            table[0, 0] = 9  # which the product has read
            self.assertEqual(table.tolist(), [[9, 1, 1, 1], [0, 0, 5, 0], [0, 7.5, 7.5, 1]])
            self.assertEqual(doubled.tolist(), [[2, 2, 2, 2], [0, 0, 10, 0], [0, 15, 15, 2]])
            with self.assertRaises(IndexError):
                table[5] = 1
            return net(x).mean()

        trace(training(body), batch=8, steps=1)

    def test_of_a_rollout_takes_the_place_of_the_last_one(self):
        seen = []

        def make_step():
            buffer = torch.zeros(64, 4096, device="cuda")

            def step():
                for row in range(64):
                    buffer[row] = torch.full((4096,), float(row + len(seen)), device="cuda")
                seen.append(buffer[:, 17].sum().item())

            return step

        trace(make_step, steps=3)
        self.assertEqual(seen, [sum(range(64)) + 64 * step for step in range(3)])

    def test_is_dropped_where_too_much_is_kept(self):
        values = []

        def make_step():
            def step():
                data = [torch.from_numpy(torch.full((1 << 23,), n).numpy()).cuda() for n in range(9)]
                values.append([x[3:5].sum() for x in data])
                self.assertEqual(values[-1][-1].item(), 2 * 8)
                values.append(values.pop()[0])

            return step

        with self.assertRaisesRegex(Exception, "int.* needs the value of a tensor"):
            trace(lambda: lambda: (make_step()(), int(values[0])), steps=1)

    def test_packs_sequences(self):
        rnn = nn.utils.rnn

        def make_step():
            net = nn.GRU(32, 64, batch_first=True).cuda()
            x = torch.zeros(4, 10, dtype=torch.long)
            for row, length in enumerate((3, 10, 5, 5)):
                x[row, :length] = 1
            table = nn.Embedding(2, 32).cuda()

            def step():
                tokens = x.cuda()
                packed = rnn.pack_padded_sequence(
                    table(tokens), (tokens != 0).sum(1).cpu(), True, enforce_sorted=False
                )
                self.assertEqual(packed.data.shape, (23, 32))
                self.assertEqual(packed.batch_sizes.tolist(), [4] * 3 + [3] * 2 + [1] * 5)
                out, lengths = rnn.pad_packed_sequence(net(packed)[0], True)
                self.assertEqual(out.shape, (4, 10, 64))
                self.assertEqual(lengths.tolist(), [3, 10, 5, 5])
                out.sum().backward()

            return step

        blocks = trace(make_step, steps=1).blocks
        self.assertIn(23 * 32 * 4, [b.size for b in blocks if b.op == "aten::cat"])


class AModel(unittest.TestCase):
    """Its values are computed where they decide something."""

    @staticmethod
    def routed(net, x):
        y = net(x)
        return y[y > 0].exp().mean()

    def test_of_recurrent_nets_is_known(self):
        def body(net, x):
            for kind, expected in ((nn.LSTM, 0.6083), (nn.GRU, 0.1138), (nn.RNN, 0.9640)):
                layer = kind(256, 4).to(x.device)
                with torch.no_grad():
                    for weight in layer.parameters():
                        weight.fill_(weight.dim() == 1)
                self.assertAlmostEqual(layer(x[None])[0].mean().item(), expected, places=3)
                packed = nn.utils.rnn.pack_sequence([x[:3], x[:1]])
                self.assertEqual(len(layer(packed)[0].data.argmax(1).tolist()), 4)
            with self.assertRaisesRegex(TraceError, "does not know it"):
                nn.LSTM(256, 4, proj_size=2).to(x.device)(x[None])[0].argmax().tolist()
            return net(x).mean()

        trace(training(body), batch=8, steps=1)

    def test_decides_a_size(self):
        torch.manual_seed(0)
        size = max(sizes_of(self.routed, "aten::index.Tensor"))
        self.assertTrue(0 < size < 8 * 256 * 8 * 2)
        self.assertEqual(size, max(sizes_of(self.routed, "aten::index.Tensor")))

    def test_that_decides_a_size_differs_from_seed_to_seed(self):
        sizes = set()
        for seed in range(3):
            traced = trace_loaded(
                lambda: training(self.routed), 8, 1, "h200", "train.py", seed=seed, seeds=3
            )
            self.assertTrue(traced.drawn)
            sizes.add(max(b.size for b in traced.blocks if b.op == "aten::index.Tensor"))
        self.assertEqual(len(sizes), 3)
        self.assertFalse(trace(training(lambda net, x: net(x).mean()), batch=8, steps=1).drawn)

    def test_of_weights_that_were_saved_is_the_same_with_every_seed(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "weights.pt")
            torch.save(nn.Linear(256, 64).state_dict(), path)

            def make_step():
                net = nn.Linear(256, 64).cuda()
                net.load_state_dict(torch.load(path))
                x = torch.ones(64, 256, device="cuda") * torch.arange(256, device="cuda")
                return lambda: net(x)[net(x) > 0].exp()

            traced = trace(make_step, steps=1)
        self.assertIn("what the model computes", traced.settings["assumed"])
        self.assertFalse(traced.drawn)

    def test_is_announced_before_it_takes_long(self):
        said = []
        with (
            mock.patch.object(computing, "_SAID_SECONDS", 0),
            mock.patch.object(computing.Computing, "say", said.append),
        ):
            trace(training(self.routed), batch=8, steps=1)
        self.assertRegex(said[0], r"^computes \d+ MiB on the CPU, about 0 s$")

    def test_is_computed_on_all_cores_where_an_op_takes_long_and_on_one_elsewhere(self):
        def body(net, x):
            large = torch.ones(1024, 1024, device="cuda")
            chosen = net(x).mean(1) > (large @ large).mean() - 1024
            for _ in range(20):
                chosen = ~chosen
            return net(x)[chosen].sum()

        with mock.patch.object(os, "cpu_count", lambda: 7), mock.patch.object(torch, "set_num_threads") as chosen:
            self.assertEqual(refusal(body), "")
        threads = [call.args[0] for call in chosen.call_args_list]
        self.assertEqual(threads.count(7), 1)
        self.assertGreater(threads.count(1), 20)

    def test_is_refused_beyond_the_bounds_of_time_and_memory(self):
        with mock.patch.object(computing, "_MOST_SECONDS", 0):
            self.assertRegex(refusal(self.routed), "on the CPU takes about 0 s; --compute all does so")
        with mock.patch.object(computing, "available_bytes", lambda: 0):
            self.assertRegex(refusal(self.routed), "MiB of the host's memory, of which 0 MiB are free")
            self.assertEqual(refusal(self.routed, "all"), "")

    def test_is_not_computed_where_nobody_wants_that(self):
        self.assertRegex(
            refusal(self.routed, "never"),
            r"^computed_test\.py:\d+: index needs the value of a tensor, and the model computes it; --compute auto",
        )
        self.assertEqual(refusal(lambda net, x: net(x)[x[:, 0] > 0].mean(), "never"), "")

    def test_is_not_computed_to_count_what_it_chooses_among_so_many(self):
        def body(net, x):
            chosen = net(x).topk(2).indices
            counts = torch.bincount(chosen.flatten(), minlength=256)
            self.assertEqual(counts.shape, (256,))
            return net(x).mean()

        self.assertEqual(refusal(body, "never"), "")

    def test_keeps_the_weights_that_an_optimizer_changes(self):
        for optimizer in (torch.optim.SGD, torch.optim.AdamW):
            traced = trace(training(self.routed, optimizer=optimizer), batch=8, steps=3)
            steps = {b.step for b in traced.blocks if b.op == "aten::index.Tensor"}
            self.assertEqual(steps, {1, 2, 3})

    def test_is_computed_once_for_all_who_ask_and_in_each_step_anew(self):
        def make_step():
            gates = nn.ModuleList(nn.Linear(64, 8) for _ in range(3)).cuda()
            experts = nn.ModuleList(nn.Linear(64, 64) for _ in range(24)).cuda()
            optimizer = torch.optim.AdamW([*gates.parameters(), *experts.parameters()])

            def step():
                x = torch.randn(512, 64, device="cuda")
                for layer, gate in enumerate(gates):
                    chosen, y = gate(x).argmax(1), torch.zeros_like(x)
                    for number in range(8):
                        rows = torch.where(chosen == number)[0]
                        y[rows] += experts[8 * layer + number](x[rows])
                    x = x + y
                x.sum().backward()
                optimizer.step()
                steps.append(ran[:])
                ran.clear()

            return step

        ran, steps = [], []
        run = recipes.Step.run

        def count(step, buffer_of):
            ran.append(step.name())
            return run(step, buffer_of)

        with mock.patch.object(recipes.Step, "run", count):
            trace(make_step, steps=3)
        for names in steps:  # a gate of each layer, and the experts of all but the last
            self.assertEqual(names.count("addmm"), 3 + 16)
            self.assertEqual([name for name in names if name.startswith("foreach")], [])

    def test_is_computed_again_in_a_checkpoint(self):
        from torch.utils.checkpoint import checkpoint

        def body(net, x):
            return checkpoint(lambda y: self.routed(net, y), x, use_reentrant=False)

        blocks = trace(training(body), batch=8, steps=1).blocks
        sizes = {
            phase: [
                b.size for b in blocks if b.op == "aten::index.Tensor" and (b.phase == phase)
            ]
            for phase in ("forward", "backward")
        }
        self.assertEqual(sizes["forward"], sizes["backward"])

    def test_gives_numbers_that_are_computed_where_something_depends_on_them(self):
        def body(net, x):
            net.eval()
            table = torch.zeros(64, 64, device="cuda")
            for _ in range(200):  # more than what is computed for nothing
                table = table @ table / 1280 + 1
            number = table.mean().item()
            self.assertEqual(f"{number:.1f} {number}", "nan nan")
            self.assertEqual(max(0, int(min(number * 0 + 3, 5)) - 1), 2)
            self.assertTrue(1 <= number * 0 + 1)
            return net(x).mean()

        before, computing._CHEAP_SECONDS = computing._CHEAP_SECONDS, 0
        try:
            trace(training(body), batch=8, steps=1)
        finally:
            computing._CHEAP_SECONDS = before


class Checks(unittest.TestCase):
    """Checks that only raise are passed, whatever the value is."""

    def test_of_arguments_are_passed(self):
        def body(net, x):
            y = unknown(x)
            assert (y > 0).all(), "all are positive"
            assert not (y > 9).any()
            if y.sum() < 0:
                raise ValueError("negative")
            if not y.max().item() > 0 or y.min().item() > 3:
                raise ValueError("too large")
            if (y < 0).any() and y.sum() > 1:
                raise ValueError("both")
            if y.sum() > 0:
                pass
            else:
                raise ValueError("negative")
            torch._assert(y.sum() > 0, "positive")
            normal = torch.distributions.Normal(y, y.abs())
            return net(x).mean() + normal.log_prob(y).mean() * 0

        self.assertEqual(refusal(body), "")

    def test_with_two_ways_on_take_the_side_that_does_more_and_are_named(self):
        taken = []

        def body(net, x):
            if unknown(x).norm() < 1:
                x = x * 2
                taken.append("scaled")
            if unknown(x).sum() > 0:
                return net(x).mean()
            taken.append("went on")
            return net(x).sum()

        said = trace(training(body), batch=8, steps=1).settings["assumed"]
        self.assertEqual(taken, ["scaled", "went on"])
        self.assertRegex(said, r"computed_test\.py:\d+: the condition is on a value that a trace does not know")

    def test_with_two_ways_on_are_not_waited_for(self):
        taken = []

        def body(net, x):
            if net(x).sum() > 1e9:
                taken.append("larger")
            return net(x).mean()

        for seconds, expected in ((5, []), (1e-9, ["larger"])):
            with (
                mock.patch.object(tensors, "MOST_SECONDS", seconds),
                mock.patch.object(computing, "_CHEAP_SECONDS", 0),
            ):
                trace(training(body), batch=8, steps=1)
            self.assertEqual(taken, expected)

    def test_that_end_a_loop_let_it_run_three_times_and_are_named(self):
        for number in (lambda x: x.sum(), lambda x: x.sum().item()):
            turns = []

            def body(net, x):
                for _ in range(2):
                    while turns.append(1) is None and number(unknown(x)) > 0:
                        x = x * 2
                return net(x).sum()

            said = trace(training(body), batch=8, steps=1).settings["assumed"]
            self.assertEqual(len(turns), 8)
        self.assertRegex(said, r"computed_test\.py:\d+: a value that a trace does not know ends the loop")

    def test_that_leave_a_loop_without_another_end_leave_it(self):
        turns = []

        def body(net, x):
            while True:
                turns.append(1)
                if unknown(x).norm() < 1e-3:
                    break
            return net(x).sum()

        trace(training(body), batch=8, steps=1)
        self.assertEqual(len(turns), 201)

    def test_of_numbers_take_the_side_that_goes_on_or_does_more(self):
        taken = []

        def body(net, x):
            best = math.inf
            for _ in range(3):
                loss = unknown(x).mean().item()
                if loss < best:
                    best = loss
                    taken.append("best")
                if loss > 100:
                    break
                if not loss < 1e9:
                    return x.mean()
            taken.append("end")
            return net(x).mean()

        self.assertEqual(refusal(body), "")
        self.assertEqual(taken, ["best"] * 3 + ["end"])


class Logging(unittest.TestCase):
    def test_of_unknown_floats_prints_nan(self):
        def body(net, x):
            y = unknown(x)
            self.assertTrue(math.isnan(float(y.mean())))
            self.assertEqual(str(y.mean().tolist()), "nan")
            self.assertTrue(math.isnan(y.mean().cpu().numpy()))
            self.assertEqual("%d of %s" % (y.sum().item(), y.sum().item()), "0 of nan")
            return net(x).mean()

        self.assertEqual(refusal(body), "")

    def test_of_unknown_arrays_is_of_zeros(self):
        """NumPy and SciPy refuse NaN, in histograms and assignments."""

        def body(net, x):
            y = unknown(x).cpu().numpy()
            self.assertEqual(y.shape, (8, 256))
            self.assertEqual(numpy.histogram(y, bins=4)[0].sum(), y.size)
            self.assertEqual(numpy.abs(y).max(), 0)
            return net(x).mean()

        self.assertEqual(refusal(body), "")

    def test_of_counts_computes_nothing(self):
        def body(net, x):
            loss = net(x).mean()
            right = 0
            right += net(x).argmax(1).eq(3).sum().item()
            self.assertEqual("%d/%d" % (right, 8), "0/8")
            return loss

        before, computing._CHEAP_SECONDS = computing._CHEAP_SECONDS, 0
        try:
            self.assertEqual(refusal(body, compute="never"), "")
        finally:
            computing._CHEAP_SECONDS = before


if __name__ == "__main__":
    unittest.main()
