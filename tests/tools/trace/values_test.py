"""Tests which values are known, and that no others silently become known (headroom/torch/values.py, unknown.py). See
python_test.sh
"""

import copy
import importlib.util
import math
import pickle
import unittest
from unittest import mock

import numpy
import torch
from torch import nn
from torch.nn import functional as F

from headroom.torch import trace
from headroom.torch.tracer import Tracer
from small_training import refusal, training, unknown

CLEAR = r"^values_test\.py:\d+: .*item\(\) needs the value of a tensor, and a trace does not know it; "


def number(x):
    """Reads a number as a program reads the length of its longest row."""
    return unknown(x).argmax(1).max().item()


class AnUnknownNumber(unittest.TestCase):
    def assert_traced(self, body):
        self.assertGreater(trace(training(body), batch=8, steps=1).peak_bytes, 0)

    def assert_refused(self, body):
        text = refusal(lambda net, x: body(x) and net(x).mean())
        self.assertRegex(text, CLEAR)

    def test_is_refused_as_the_size_of_a_range(self):
        for body in (
            lambda x: torch.arange(number(x)),
            lambda x: torch.arange(number(x), device="cuda"),
            lambda x: torch.arange(0, number(x), 2),
            lambda x: torch.arange(0, 10, number(x)),
            lambda x: torch.arange(math.sqrt(number(x) + 1) // 2),
            lambda x: torch.arange(float(number(x))),
            lambda x: range(number(x)),
        ):
            self.assert_refused(body)

    def test_is_refused_as_every_other_size(self):
        for body in (
            lambda x: torch.zeros(number(x)),
            lambda x: torch.empty((number(x), 3), device="cuda"),
            lambda x: torch.full((number(x),), 1.0),
            lambda x: torch.rand(number(x) // 2),
            lambda x: torch.eye(number(x)),
            lambda x: torch.zeros(int(number(x))),
            lambda x: torch.zeros(int(float(number(x)))),
            lambda x: torch.zeros(math.ceil(float(number(x)))),
            lambda x: torch.linspace(0, 1, number(x)),
            lambda x: torch.zeros(max(number(x), 7)),
            lambda x: x.new_zeros(8, number(x)),
            lambda x: x.view(number(x), -1),
            lambda x: x.expand(number(x), 8, 256),
            lambda x: x.repeat(number(x), 1),
            lambda x: x.narrow(1, 0, number(x)),
            lambda x: x.chunk(number(x)),
            lambda x: x.split(number(x)),
            lambda x: x.tril(number(x)),
            lambda x: x.topk(number(x)),
            lambda x: x[:, : number(x)],
            lambda x: F.pad(x, (0, number(x))),
            lambda x: F.interpolate(x[None], size=number(x)),
            lambda x: F.interpolate(x[None], scale_factor=number(x)),
            lambda x: F.one_hot(x.argmax(1), number(x)),
            lambda x: nn.Linear(number(x), 4),
            lambda x: [0] * number(x),
        ):
            self.assert_refused(body)

    def test_is_refused_where_a_branch_depends_on_it(self):
        for body in (
            lambda x: number(x) > 3,
            lambda x: math.exp(number(x)) > 3,
            lambda x: math.isclose(number(x), 3),
            lambda x: divmod(number(x), 3)[1] == 0,
            lambda x: number(x).real > 3,
            lambda x: {1: "one"}[number(x)],
            lambda x: copy.deepcopy(number(x)) > 3,
            lambda x: pickle.loads(pickle.dumps(number(x))) > 3,
        ):
            self.assert_refused(body)

    def test_makes_no_tensor_of_known_values(self):
        for make in (
            lambda x: torch.tensor(number(x)),
            lambda x: torch.tensor([1.0, number(x)], device="cuda"),
            lambda x: torch.as_tensor([[number(x)]]),
            lambda x: torch.tensor([number(x)], dtype=torch.long),
            lambda x: torch.full((2,), number(x)),
            lambda x: torch.zeros(2).fill_(number(x)),
            lambda x: torch.zeros(2).add_(number(x)),
            lambda x: torch.ones(2, device="cuda") * number(x),
            lambda x: number(x) * torch.ones(2),
            lambda x: torch.linspace(0, number(x), 5),
            lambda x: torch.full_like(torch.zeros(2), number(x)),
            lambda x: torch.where(torch.ones(2) > 0, number(x), 0.0),
        ):
            text = refusal(lambda net, x: net(x).mean() if make(x).sum() > 0 else 0)
            self.assertRegex(text, r"^values_test\.py:\d+: a condition on a tensor needs")

    def test_prints_as_unknown(self):
        def body(net, x):
            n = number(x)
            texts = (
                f"{n:d} {n:.2f} {n}",
                f"{math.exp(n):.1f} {math.log(n)}",
                "%.2f" % n,
                str(float(n)),
            )
            self.assertEqual(" ".join(texts).replace("nan", "").strip(), "")
            return net(x).mean()

        self.assert_traced(body)

    def test_passes_for_finite(self):
        def body(net, x):
            n = number(x)
            self.assertTrue(math.isfinite(n))
            self.assertFalse(math.isnan(n) or math.isinf(n * 2))
            return net(x).mean()

        self.assert_traced(body)

    @unittest.skipIf(importlib.util.find_spec("numpy") is None, "no NumPy")
    def test_is_the_same_to_numpy(self):
        import numpy

        def body(net, x):
            n = number(x)
            self.assertTrue(numpy.isfinite(n))
            self.assertFalse(numpy.isnan(n) or numpy.isinf(n * 2))
            self.assertTrue(math.isnan(float(numpy.mean([n, 1.0]))))
            return net(x).mean()

        self.assert_traced(body)
        for refused in (
            lambda x: numpy.zeros(number(x)),
            lambda x: numpy.sqrt(number(x)) > 3,
            lambda x: numpy.greater(number(x), 3),
        ):
            self.assert_refused(refused)

    def test_scales_tensors_from_both_sides(self):
        def body(net, x):
            n = number(x)
            return (n * net(x) + net(x) / n - n).mean()

        self.assert_traced(body)

    def test_of_a_tensor_is_not_what_the_tensor_was_before(self):
        def has_other_data(x):
            known = torch.zeros((), device="cuda")
            known.data = unknown(x).sum()
            return known

        def has_other_memory(x):
            known = torch.zeros((), device="cuda")
            known.set_(unknown(x).sum())
            return known

        def has_run(x):
            norm = nn.BatchNorm1d(256).cuda()
            norm(unknown(x))
            return norm.running_mean.sum()

        for make in (has_other_data, has_other_memory, has_run):
            text = refusal(lambda net, x: net(x).mean() if make(x) == 0 else 0)
            self.assertRegex(text, r"^values_test\.py:\d+: a condition on a tensor needs", make)

    def test_leaves_errors_of_the_program_as_they_are(self):
        def body(net, x):
            number(x)
            raise TypeError("unknown color")

        with self.assertRaisesRegex(TypeError, "^unknown color$"):
            trace(training(body), batch=8, steps=1)

    def test_keeps_no_tensors_of_a_function_that_bounds_it(self):
        def bounded(x):
            wide = x.new_ones(1000, 1000)
            return max(1.0, wide.norm().item())

        def make_step():
            x = torch.randn(8, device="cuda")
            return lambda: bounded(x)

        events = trace(make_step, steps=2).recorder.events
        sizes = {kind: [e[1].size for e in events if e[0] == kind] for kind in "af"}
        self.assertEqual([sizes[kind].count(4000000) for kind in "af"], [2, 2])

    def test_lets_scripts_of_torch_use_the_module_math(self):
        def body(net, x):
            code = "def scaled(x):\n    return x / math.sqrt(x.size(-1))\n"
            return net(torch.jit.CompilationUnit(code).scaled(x)).mean()

        self.assert_traced(body)


class Elements(unittest.TestCase):
    def test_of_data_are_read_and_written_without_an_op_for_each(self):
        """Programs that make their data themselves do so row by row."""

        def body(net, x):
            rows, mask, sums = torch.rand(200, 1, 5), torch.zeros(200, 1, 5), torch.zeros(200, 1)
            ran.clear()
            for row in range(200):
                places = numpy.random.choice(5, 2, replace=False)
                mask[row, 0, places[0]] = 1
                mask[row, 0, places[1]] = numpy.float64(1)
                sums[row, 0] = rows[row, 0, places[0]] + rows[row, 0, places[1]]
                sums[row, 0] += 1
            self.assertEqual(len(ran), 2 * 200)  # the sums
            self.assertEqual(mask.sum().item(), 400)
            expected = (rows * mask).sum(2) + 1
            self.assertTrue(torch.allclose(expected, sums))
            mask[3, :, 1:4] = torch.tensor([7.0, 8.0, 9.0])
            self.assertEqual(mask[3, 0].tolist()[1:4], [7.0, 8.0, 9.0])
            kept, total = sums[1, 0], sums.sum()
            sums[0, 0].fill_(3)
            kept.zero_()
            self.assertEqual(sums[:2, 0].tolist(), [3.0, 0.0])
            self.assertGreater(total.item(), sums.sum().item())
            return net(x).mean()

        ran, run = [], Tracer._run
        with mock.patch.object(Tracer, "_run", lambda *args: ran.append(args[1]) or run(*args)):
            trace(training(body), batch=8, steps=1)


if __name__ == "__main__":
    unittest.main()
