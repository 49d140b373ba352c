"""Tests what is drawn in the place of what a model would choose, where computing takes long (torch/choices.py). See
python_test.sh
"""

import unittest
from unittest import mock

import torch
from torch import nn

from headroom.torch import computing, trace, values
from headroom.torch.recipes import Evaluation, Step
from small_training import refusal, training


class Choices(unittest.TestCase):
    def setUp(self):
        for patched in (
            mock.patch.object(computing, "_MOST_SECONDS_OF_CHOICES", 0),
            mock.patch.object(computing, "_CHEAP_SECONDS", 0),
            mock.patch.object(Evaluation, "run", self.run_cheap(Evaluation.run)),
        ):
            patched.start()
            self.addCleanup(patched.stop)

    def run_cheap(self, original):
        def run(evaluation, *args):
            self.assertEqual(evaluation.flops(), 0)
            return original(evaluation, *args)

        return run

    def traced(self, body):
        return trace(training(body), batch=8, steps=1)

    def test_of_a_model_are_drawn_in_their_range(self):
        def body(net, x):
            y = net(x)
            some = y.topk(3).indices
            for row in some.tolist():
                self.assertEqual(len(set(row)), 3)
            for places in (
                some, y.argmax(1), y.argmax(), y.max(1)[1], y.argmin(1, True), torch.multinomial(y.softmax(1), 5)
            ):
                numbers = torch.as_tensor(places.tolist())
                self.assertEqual(numbers.shape, places.shape)
                self.assertTrue((0 <= numbers).all() and (numbers < y[:, :256].numel()).all())
            self.assertTrue((torch.as_tensor(y.argmax(1).tolist()) < 256).all())
            order = y.sort(1).indices.tolist()
            self.assertEqual([sorted(row) for row in order], [list(range(256))] * 8)
            return y.mean()

        traced = self.traced(body)
        self.assertIn("tokens, experts or classes", traced.settings["assumed"])
        self.assertTrue(traced.drawn)

    def test_send_tokens_to_experts(self):
        def body(net, x):
            y = net(x)
            chosen = y[:, :4].topk(2).indices
            counts = [torch.where(chosen == expert)[0].numel() for expert in range(4)]
            self.assertEqual(sum(counts), 16)
            return y.mean()

        self.traced(body)

    def test_of_tokens_end_no_text_but_by_chance(self):
        def body(net, x):
            y, tokens = net(x), []
            for _ in range(20):
                token = net(y).softmax(-1)[:1].multinomial(1)
                if token.item() == -1:
                    break
                tokens.append(int(token))
            self.assertEqual(len(tokens), 20)
            return y.mean()

        self.traced(body)

    def test_stay_whole_numbers_in_tensors_of_a_program(self):
        def body(net, x):
            tokens = torch.tensor([[5, token.item()] for token in net(x).argmax(1)], device="cuda")
            self.assertEqual((tokens.dtype, tokens.shape), (torch.int64, (8, 2)))
            self.assertTrue(all(0 <= token < 256 for token in tokens[:, 1].tolist()))
            return net(x).mean()

        self.traced(body)

    def test_leave_what_no_choice_gives_to_be_computed(self):
        def body(net, x):
            y = net(x)
            return y[y > 0].mean() + len(y[0].topk(2).indices.tolist())

        with self.assertRaises(AssertionError):
            self.traced(body)

    def test_are_not_drawn_for_a_condition_that_goes_on_either_way(self):
        def body(net, x):
            y, best = net(x), 0.0
            correct = (y.argmax(1) == 0).sum().item() / 8
            if correct > best:
                best = correct
            return y.mean()

        self.assertFalse(self.traced(body).drawn)

    def test_are_refused_where_nothing_is_to_be_computed(self):
        def body(net, x):
            return nn.functional.one_hot(net(x).argmax(1)).float().mean()

        self.assertIn("--compute auto computes", refusal(body, "never"))


class Recipes(unittest.TestCase):
    def test_of_a_long_text_are_cut_at_its_tokens(self):
        """The program keeps what it would be computed from, as keys and values."""

        def body(net, x):
            keys, text = [], torch.zeros(1, dtype=torch.int64, device="cuda")
            with torch.no_grad():
                for _ in range(40):
                    keys.append(net(x + text.sum()))
                    text = torch.cat([text, keys[-1][:1].softmax(1).multinomial(1)[0]])
            tokens = text.cpu().numpy()
            self.assertEqual(tokens.shape, (41,))
            self.assertTrue((0 <= tokens).all() and (tokens < 256).all() and tokens.any())
            return net(x).mean()

        with (
            mock.patch.object(values, "MANY_STEPS", 50),
            mock.patch.object(values, "_MOST_STEPS", 100),
            mock.patch.object(computing, "_CHEAP_SECONDS", 5e-4),
        ):
            traced = trace(training(body), batch=8, steps=1)
        self.assertIn("tokens, experts or classes", traced.settings["assumed"])

    def test_end_with_what_is_computed_where_there_are_many(self):
        """Recipes like those of the keys and values of a text, which grow token by token."""

        def body(net, x):
            keys = x
            for _ in range(50):
                keys = torch.cat([keys, net(x)])
                self.assertNotEqual(keys[-1].argmax().item(), 256)
            counts.append(Step.count - before)
            return keys.mean()

        counts, before = [], Step.count
        for many in (0, 100_000):
            with mock.patch.object(computing, "MANY_STEPS", many):
                trace(training(body), batch=8, steps=1)
        self.assertLess(counts[0], 40)
        self.assertGreater(counts[1], 100)


if __name__ == "__main__":
    unittest.main()
