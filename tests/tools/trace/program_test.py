"""What a program that cannot be traced is told. See python_test.sh"""

import os
import tempfile
import textwrap
import unittest

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


if __name__ == "__main__":
    unittest.main()
