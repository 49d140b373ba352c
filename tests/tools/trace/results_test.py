"""Results of ops that are made anew instead of run. Runs where PyTorch is: tests/tools/trace/python_test.sh"""

import gc
import os
import sys
import unittest
import unittest.mock

import torch
from torch import nn
from torch.nn import functional as F

from headroom.torch import results, trace
from headroom.torch.trace_file import trace_lines

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "recorded"))
import train  # noqa: E402


def make_views(batch):
    """Results that share memory, come in lists, or lie otherwise than their arguments."""
    net = nn.LSTM(64, 64, batch_first=True).cuda()
    weight = nn.Parameter(torch.randn(64, 192).cuda())
    x = torch.randn(batch, 16, 64, device="cuda")

    def step():
        q, k, v = (net(x)[0] @ weight).split(64, dim=2)
        heads = [part.unflatten(2, (4, 16)).transpose(1, 2) for part in (q, k, v.flip(1))]
        y = F.scaled_dot_product_attention(*heads).permute(0, 2, 1, 3).flatten(2)
        y = F.pad(y[:, ::2], (1, 1)).to(torch.float64).float()
        y = y + torch.stack([x[i, 1:9, -1] + x[:, i - 3, i].sum() for i in range(4)]).sum()
        assert [x[i, 2 * i].view(8, 8).t().storage_offset() for i in (1, 2, 3)] == [1152, 2304, 3456]
        parts = torch.cat(list(y.chunk(3, 1)) + [y.narrow(1, 0, 2)], 1).unbind(1)
        with torch.autocast("cuda", torch.bfloat16):
            z = torch.stack(parts).contiguous() @ torch.ones(66, 3, device="cuda")
        deviation, mean = torch.std_mean(z.float(), 0)
        (mean.softmax(1).topk(2)[0].sum() + deviation.amax() + z.view(-1)[1:].max()).backward()

    return step


class Results(unittest.TestCase):
    def test_those_that_are_made_anew_are_what_the_op_gives(self):
        self.addCleanup(gc.enable)
        gc.disable()  # it frees cycles after as many objects as it wants
        for make in (train.make_cnn, train.make_transformer, make_views):
            lines = []
            for remembers in (True, False):
                run = results.Results.run if remembers else results.Results._run
                with unittest.mock.patch.object(results.Results, "run", run):
                    lines.append(list(trace_lines(trace(make, batch=4, steps=2).recorder, {})))
            self.assertEqual(lines[0], lines[1])

    def test_those_that_follow_from_the_type_of_a_number_are_made_anew_for_every_number(self):
        def make_step():
            weight = nn.Parameter(torch.ones(8, 8).cuda())

            def step():
                for number in range(10):
                    y = weight * (number + 0.5) + torch.full((8,), number / 7, device="cuda")
                    y = y.clamp(min=-number / 3).add(y, alpha=number / 9) ** (2.0 + number)
                    ran.append(run.call_count)
                    assert (weight.detach() > 0.5 - number).sum().item() == 64

            return step

        ran = []
        with unittest.mock.patch.object(results.Results, "_run", autospec=True, side_effect=results.Results._run) as run:
            trace(make_step, steps=1)
        self.assertEqual(ran[-1], ran[1])

    def test_views_of_numbers_are_those_of_the_cpu(self):
        def make_step():
            weight = nn.Parameter(torch.ones(8, 8).cuda())

            def step():
                (weight + 1j * weight).abs().sum().backward()
                assert weight.grad.shape == (8, 8)

            return step

        sizes = {block.size for block in trace(make_step, steps=1).blocks}
        self.assertEqual(sizes, {4, 8 * 8 * 4, 8 * 8 * 8})

    def test_ops_that_look_at_values_or_change_shapes_are_always_run(self):
        aten = torch.ops.aten
        for op in (
            aten.nonzero.default,
            aten._local_scalar_dense.default,
            aten.t_.default,
            aten.resize_.default,
            aten._foreach_add_.List,
            aten.split.Tensor,
            aten.max.dim_max,
        ):
            self.assertEqual(results._kind_of(op), results._RUNS, op)
        self.assertEqual(results._kind_of(aten.add_.Tensor), results._WRITES)
        self.assertEqual(results._kind_of(aten.add.Tensor), results._MAKES)
        self.assertEqual(results._kind_of(aten.transpose.int), results._VIEWS)


if __name__ == "__main__":
    unittest.main()
