"""Tests the messages for programs that cannot be traced. See python_test.sh"""

import contextlib
import io
import os
import sys
import tempfile
import textwrap
import unittest

from headroom.__main__ import main
from headroom.torch.errors import TraceError
from headroom.torch.program import trace_program


class ProgramTest(unittest.TestCase):
    def error_of(self, text, function="make_step", **options):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "train.py")
            with open(path, "w") as file:
                file.write(textwrap.dedent(text))
            with self.assertRaises((TraceError, ValueError)) as caught:
                trace_program(f"{path}:{function}", **options)
            return str(caught.exception).replace(path, "train.py")

    def test_an_exit_is_told_from_one_of_a_file_that_is_loaded(self):
        guard = 'guard its main program with if __name__ == "__main__"'
        self.assertEqual(
            self.error_of("raise SystemExit(3)\n"),
            f"train.py ended Python (3) while it was loaded; {guard}",
        )
        made = """
            import sys
            def make_step(batch=4):
                sys.exit(3)
        """
        self.assertEqual(
            self.error_of(made),
            "train.py:4: make_step or its step ended Python (3); leave the exit out of what is traced",
        )
        done = """
            import sys
            def make_step(batch=4):
                def step():
                    sys.exit("done")
                return step
        """
        self.assertEqual(
            self.error_of(done),
            "train.py:5: make_step or its step ended Python (done); leave the exit out of what is traced",
        )

    def test_an_unknown_device_is_no_error_of_the_program(self):
        self.assertTrue(
            self.error_of("def make_step(): pass\n", device="rtx-9").startswith(
                "unknown device 'rtx-9'; known: h200, "
            )
        )

    def test_the_functions_that_may_be_meant_are_those_that_take_a_batch_or_nothing(self):
        text = """
            def tokenizer(): pass
            def evaluate(model, data): pass
            def named(batch, *, rate): pass
            def make_large(batch, width=2): pass
            def make_step(batch): pass
        """
        self.assertEqual(
            self.error_of(text, "make_stop"),
            "train.py has no function 'make_stop'; it has make_step, make_large, tokenizer",
        )
        many = "".join(f"def make_{number}(batch): pass\n" for number in range(25))
        self.assertEqual(
            self.error_of(many, "make_stop"),
            "train.py has no function 'make_stop'; it has make_0, make_1, make_2, make_3, make_4 and 20 more",
        )

    def test_a_program_has_no_arguments_but_its_own_name(self):
        arguments = list(sys.argv)
        text = """
            import argparse, sys
            parser = argparse.ArgumentParser()
            parser.add_argument("--rate", type=float, default=0.1)
            loaded = parser.parse_args(), list(sys.argv)
            def make_step():
                raise ValueError(f"{loaded[0].rate} {loaded[1] == sys.argv} {sys.argv}")
        """
        self.assertEqual(self.error_of(text), "train.py:7: ValueError: 0.1 True ['train.py']")
        self.assertEqual(sys.argv, arguments)

    def test_arguments_that_a_program_requires_are_told_from_other_exits(self):
        advice = (
            "a traced function gets no arguments: trace its program by the command that you type, as headroom "
            "trace -- python train.py --data DATA"
        )
        parse = """
            import argparse
            parser = argparse.ArgumentParser()
            parser.add_argument("--data", required=True)
            {}parser.parse_args()
        """
        for place, line in (("", 5), ("def make_step(): ", 5)):
            with contextlib.redirect_stderr(io.StringIO()):
                error = self.error_of(parse.format(place))
            required = "the following arguments are required: --data"
            self.assertEqual(error, f"train.py:{line}: {required}; {advice}")

    def test_what_is_no_step_is_named(self):
        for returned, name in (("None", "None"), ("5", "int"), ("[]", "list")):
            self.assertEqual(
                self.error_of(f"def make_step(): return {returned}\n"),
                f"make_step must return a function that does one training step, not {name}",
            )


class MainTest(unittest.TestCase):
    def test_a_file_that_cannot_be_written_is_one_line(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "train.py")
            with open(path, "w") as file:
                file.write("import torch\ndef make_step(): return lambda: torch.ones(4)\n")
            for output, text in (
                ("", "--output: the name of the file is empty"),
                (
                    os.path.join(folder, "no", "run.trace"),
                    "cannot write it: No such file or directory",
                ),
            ):
                with contextlib.redirect_stderr(io.StringIO()) as stderr:
                    code = main(["trace", f"{path}:make_step", "-o", output, "--quiet"])
                self.assertIn(code, (1, 2))
                self.assertRegex(stderr.getvalue(), rf"^headroom trace: [^\n]*{text}\n$")


if __name__ == "__main__":
    unittest.main()
