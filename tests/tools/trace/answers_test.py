"""Traces that another process asks for are those of new processes, whatever the program does. See python_test.sh"""

import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import unittest

import torch._dynamo  # noqa: F401  # which a trace loads: here once for all copies of this process

from headroom.torch.answers import Server
from headroom.torch.child import ChildError, in_child
from headroom.torch.errors import TraceError
from headroom.torch.program import trace_program
from headroom.torch.recorder import Recorder
from headroom.torch.seeds import Seeds
from headroom.torch.trace_file import write_trace

HEAD = """
    import os, sys, threading, time
    import torch
    from torch import nn

    calls = []

    def make_step(batch):
        calls.append(batch)
        net = nn.Sequential(nn.Linear(64, 64 * len(calls)), nn.GELU(), nn.Linear(64 * len(calls), 8)){cuda}
        optimizer = torch.optim.AdamW(net.parameters())
        x = torch.randn(batch, 64{device})

        def step():
            optimizer.zero_grad()
            loss = net(x).mean()
            {body}
            loss.backward()
            optimizer.step()

        return step
"""


def text_of(path):
    """A trace without the frames of this file, which stacks end with."""
    with open(path) as file:
        return re.sub(r"(.*train\.py:\d+ [^%\n]*)%0a.*", r"\1", file.read())


class Ranges(unittest.TestCase):
    """A program of random sizes is traced with several seeds, of which the largest is kept."""

    def trace(self, peaks, drawn=True):
        made, folder = [], tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        output = os.path.join(folder.name, "run.trace.gz")

        def trace(path, seed):
            made.append(seed)
            if peaks[seed] is None:
                raise TraceError("a box without an area")
            recorder = Recorder()
            recorder.allocate(peaks[seed], "aten::empty")
            write_trace(path, recorder, {"program": "train.py"})
            return {"peak_bytes": peaks[seed], "drawn": drawn, "requests": peaks[seed]}

        seeds = Seeds()
        facts = seeds.trace(output, trace)
        again = seeds.trace(output, trace)
        self.assertEqual(facts, again)
        self.assertEqual(os.listdir(folder.name), ["run.trace.gz"])
        with gzip.open(output, "rt") as file:
            return made, facts["peak_bytes"], file.read()

    def test_are_of_three_seeds_where_what_the_model_computes_decides_sizes(self):
        made, peak, text = self.trace([512, 2048, 1024])
        self.assertEqual((made, peak), ([0, 1, 2, 1], 2048))
        self.assertIn("s,seed_peaks,512 2048 1024\n", text)
        self.assertIn(",2048,0,0,", text)

    def test_cost_one_trace_where_nothing_depends_on_them(self):
        made, peak, text = self.trace([512, 2048, 1024], drawn=False)
        self.assertEqual((made, peak), ([0, 0], 512))
        self.assertNotIn("seed_peaks", text)

    def test_end_with_a_second_seed_that_requests_the_same(self):
        made, peak, text = self.trace([512, 512, 1024])
        self.assertEqual((made, peak), ([0, 1, 0], 512))
        self.assertNotIn("seed_peaks", text)

    def test_leave_out_seeds_that_lead_into_an_error(self):
        made, peak, text = self.trace([512, None, 1024])
        self.assertEqual((made, peak), ([0, 1, 2, 2], 1024))
        self.assertIn("s,seed_peaks,512 1024\n", text)


class Answers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def program(self, body="pass", on_gpu=True, text=None):
        path = os.path.join(self.folder, "train.py")
        device = ', device="cuda"' if on_gpu else ""
        text = text or HEAD.format(body=body, device=device, cuda=".cuda()" if on_gpu else "")
        with open(path, "w") as file:
            file.write(textwrap.dedent(text))
        return f"{path}:make_step"

    def ask(self, program, requests, steps=2):
        """The answers, of a server in a process of its own."""

        def answers():
            server = Server(program, steps, "h200")
            return [
                server.answer({"output": self.path(number), **request})
                for number, request in enumerate(requests)
            ]

        return in_child(answers)

    def path(self, number):
        return os.path.join(self.folder, f"{number}.trace")

    def text(self, number):
        return text_of(self.path(number))

    def text_alone(self, program, batch, steps=2):
        path = os.path.join(self.folder, "alone.trace")
        in_child(lambda: trace_program(program, batch, steps).save(path))
        return text_of(path)

    def test_each_trace_is_that_of_a_process_of_its_own(self):
        for on_gpu in (True, False):
            program = self.program(on_gpu=on_gpu)
            self.ask(program, [{"batch": 4}, {"batch": 8}, {"batch": 4}])
            self.assertEqual(self.text(0), self.text_alone(program, 4))
            self.assertEqual(self.text(1), self.text_alone(program, 8))
            self.assertEqual(self.text(0), self.text(2))

    def test_a_program_with_threads_of_its_own_is_traced_too(self):
        text = HEAD.format(body="pass", device=', device="cuda"', cuda=".cuda()")
        text += "\n    threading.Thread(target=lambda: time.sleep(600), daemon=True).start()\n"
        program = self.program(text=text)
        self.assertIn("modules", self.ask(program, [{"batch": 4}, {"batch": 8}])[1])
        self.assertEqual(self.text(0), self.text_alone(program, 4))

    def test_an_error_names_the_programs_line_and_the_next_request_is_answered(self):
        program = self.program("assert calls != [4], 'no four'")
        answers = self.ask(program, [{"batch": 4}, {"batch": 8}])
        self.assertRegex(answers[0]["error"], r"^train\.py:\d+: AssertionError: no four$")
        self.assertIn("modules", answers[1])

    def test_a_program_that_ends_python_is_told_and_the_next_request_is_answered(self):
        for body, what in (
            ("calls != [4] or os._exit(7)", "Python ended with exit code 7"),
            ("calls != [4] or os._exit(0)", "Python ended with exit code 0"),
            ("calls != [4] or os.kill(os.getpid(), 9)", "Python ended by signal 9 (Killed)"),
        ):
            program = self.program(body)
            answers = self.ask(program, [{"batch": 4}, {"batch": 8}])
            self.assertEqual(answers[0], {"failure": f"{program}: {what}"})
            self.assertIn("modules", answers[1])

    def test_requests_and_answers_are_lines_which_the_program_neither_reads_nor_writes(self):
        program = self.program("print('noise'); calls != [4] or input()")
        requests = [{"output": self.path(i), "batch": batch} for i, batch in enumerate((4, 8))]
        ran = subprocess.run(
            [sys.executable, "-m", "headroom", "trace", program, "--requests"],
            input="".join(json.dumps(request) + "\n" for request in requests),
            capture_output=True,
            text=True,
        )
        answers = [json.loads(line) for line in ran.stdout.splitlines()]
        self.assertEqual(len(answers), 2, ran.stderr)
        self.assertRegex(answers[0]["error"], r"^train\.py:\d+: EOFError")
        self.assertIn("modules", answers[1])

    def test_what_cannot_be_loaded_is_an_error_for_each_request(self):
        program = self.program(text="import nowhere_to_be_found\n")
        for answer in self.ask(program, [{"batch": 4}, {"batch": 8}]):
            self.assertRegex(answer["error"], r"^train\.py:1: ModuleNotFoundError: No module")
        program = self.program().replace("make_step", "make_stop")
        self.assertRegex(
            self.ask(program, [{"batch": 4}])[0]["error"],
            r"train\.py has no function 'make_stop'; it has make_step$",
        )
        for answer in self.ask(os.path.join(self.folder, "none.py:make_step"), [{}, {}]):
            self.assertIn("no such file", answer["error"])

    def test_an_optimizer_that_was_made_with_the_file_is_changed_too(self):
        text = """
            import torch
            net = torch.nn.Linear(256, 256).cuda()
            optimizer = torch.optim.AdamW(net.parameters(){fused})

            def make_step(batch):
                x = torch.randn(batch, 256, device="cuda")

                def step():
                    optimizer.zero_grad()
                    net(x).mean().backward()
                    optimizer.step()

                return step
        """
        self.ask(self.program(text=text.format(fused=", fused=True")), [{"batch": 4}])
        by_hand = self.text(0)
        program = self.program(text=text.format(fused=""))
        self.ask(program, [{"batch": 4}, {"batch": 4, "changes": {"fused": True}}])
        self.assertEqual(self.text(1), by_hand)
        self.assertNotEqual(self.text(0), by_hand)


class Child(unittest.TestCase):
    def test_what_it_does_stays_in_the_copy(self):
        values = [1]
        self.assertEqual(in_child(lambda: values.append(2) or values), [1, 2])
        self.assertEqual(values, [1])

    def test_an_error_in_the_copy_is_one_line_here(self):
        def fail():
            raise ValueError("one\ntwo")

        with open(os.devnull, "w") as nothing:
            errors, sys.stderr = sys.stderr, nothing
            try:
                with self.assertRaisesRegex(ChildError, "^ValueError: one two$"):
                    in_child(fail)
            finally:
                sys.stderr = errors


if __name__ == "__main__":
    unittest.main()
