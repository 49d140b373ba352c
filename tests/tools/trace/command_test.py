"""Tests commands: which program they run, what its batch is, and that it changes no file. See python_test.sh"""

import contextlib
import importlib
import json
import os
import sys
import tempfile
import unittest

import torch._dynamo  # noqa: F401  # which a trace loads: here once for all copies of this process

from headroom.torch import command
from headroom.torch import notebook
from headroom.torch.batches import Batch, Found, choose_batch
from headroom.torch.errors import TraceError
from headroom.torch.sandbox import Sandbox
from headroom.torch.standin import libraries
from in_folder import InFolder


class Parsing(InFolder):
    def test_the_program_and_its_arguments_are_those_of_the_words(self):
        self.write("train.py")
        self.write("a.ipynb", "{}")
        for words, kind, target, arguments in (
            ("python train.py --lr 1", "script", "train.py", ("--lr", "1")),
            ("/usr/bin/python3.11 -u -W ignore train.py -m x", "script", "train.py", ("-m", "x")),
            ("python -m pkg.train --lr 1", "module", "pkg.train", ("--lr", "1")),
            ("python -c pass a", "code", "pass", ("a",)),
            ("train.py a", "script", "train.py", ("a",)),
            ("a.ipynb", "notebook", "a.ipynb", ()),
            ("jupyter nbconvert --execute a.ipynb", "notebook", "a.ipynb", ()),
            ("torchrun --nproc-per-node 4 train.py --lr 1", "script", "train.py", ("--lr", "1")),
            ("python -m torch.distributed.run -m pkg.train a", "module", "pkg.train", ("a",)),
            ("env A=1 B=2 python train.py", "script", "train.py", ()),
        ):
            found = command.parse(words.split())
            self.assertEqual((found.kind, found.target, tuple(found.arguments)), (kind, target, arguments))
            self.assertEqual(found.title, words)

    def test_a_launcher_gives_the_environment_of_its_first_rank(self):
        self.write("train.py")
        found = command.parse("torchrun --nnodes 2 --nproc_per_node=4 train.py".split())
        names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
        self.assertEqual([found.environment[name] for name in names], ["0", "0", "8", "4"])
        self.assertEqual(command.parse("env A=1 python train.py".split()).environment, {"A": "1"})

    def test_what_python_does_not_run_is_one_line(self):
        self.write("run.sh", "#!/bin/sh\n")
        for words, text in (
            ([], "no command after --"),
            (["python"], "the command names no program for Python"),
            (["python", "none.py"], "none.py: no such file"),
            (["python", "-"], "a program on standard input cannot be traced"),
            (["./run.sh"], "./run.sh is not a program of Python"),
            (["no-such-command"], "no-such-command: no such command"),
            (["torchrun", "--nproc-per-node", "x", "train.py"], "--nproc-per-node: 'x' is no number"),
        ):
            with self.assertRaisesRegex(TraceError, "^" + text):
                command.parse(words)


class Notebooks(InFolder):
    def test_commands_of_ipython_are_left_out_and_python_is_not_changed(self):
        source = "%matplotlib inline\n!pip install x \\\n  y\nfiles = !ls\nif 1:\n    !ls\nx = 3"
        self.assertEqual(notebook.to_python(source), "pass\npass\n\nfiles = []\nif 1:\n    pass\nx = 3")
        self.assertEqual(notebook.to_python("%%bash\nls"), "")
        self.assertEqual(notebook.to_python("%%time\nx = 1"), "pass\nx = 1")
        text = 'x = """\n%d\n"""'
        self.assertEqual(notebook.to_python(text), text)

    def test_what_is_no_notebook_is_one_line(self):
        self.write("a.ipynb", "[]")
        with self.assertRaisesRegex(TraceError, "^a.ipynb is no notebook"):
            notebook.cells("a.ipynb")


class Files(InFolder):
    def setUp(self):
        super().setUp()
        self.write("data/a.txt", "one")
        self.write("old.txt", "old")
        self.box = tempfile.mkdtemp()

    @contextlib.contextmanager
    def sandbox(self):
        with contextlib.ExitStack() as stack:
            sandbox = Sandbox(self.box)
            sandbox.install(stack)
            libraries.read_copies(stack, sandbox)
            yield

    def test_a_program_finds_what_it_wrote_and_nothing_else_is_changed(self):
        import pathlib
        import shutil

        with self.sandbox():
            os.makedirs("out/best")
            self.assertTrue(os.path.isdir("out/best"))
            self.assertGreater(shutil.disk_usage("out/best").total, 0)
            os.makedirs("out/made")
            pathlib.Path("out/made/written_here.py").write_text("number = 7")
            sys.path.append(os.path.abspath("out"))
            importlib.invalidate_caches()
            self.assertEqual(importlib.import_module("made.written_here").number, 7)
            sys.path.pop()
            shutil.rmtree("out/made")
            pathlib.Path("out/best/a.json").write_text("{}")
            self.assertEqual(json.loads(pathlib.Path("out/best/a.json").read_text()), {})
            with open("data/a.txt", "a") as file:
                file.write(" two")
            with open("data/a.txt") as file:
                self.assertEqual(file.read(), "one two")
            os.remove("old.txt")
            self.assertFalse(os.path.exists("old.txt"))
            os.rename("out/best/a.json", "b.json")
            self.assertEqual(sorted(os.listdir(".")), ["b.json", "data", "out"])
            shutil.copyfile("b.json", "c.json")
            shutil.rmtree("data")
            self.assertFalse(os.path.exists("data/a.txt"))
            os.makedirs("data", exist_ok=True)
            self.assertEqual(os.listdir("data"), [])
            os.chdir("out")
            with open("here.txt", "w") as file:
                file.write("x")
            self.assertTrue(os.path.exists(os.path.join(self.folder, "out", "here.txt")))
            with self.assertRaises(FileNotFoundError):
                open("none/x", "w")
            with self.assertRaises(FileExistsError):
                os.mkdir(os.path.join(self.folder, "out"))
            with tempfile.TemporaryDirectory() as folder:
                self.assertTrue(folder.startswith(os.path.realpath(self.box)))
        self.assertEqual(self.files(), ["./data/a.txt", "./old.txt"])
        with open("data/a.txt") as file:
            self.assertEqual(file.read(), "one")

    def test_libraries_that_open_files_by_themselves_do_it_there_too(self):
        import sqlite3

        with self.sandbox():
            os.mkdir("out")
            for number in (1, 2):
                with contextlib.closing(sqlite3.connect("out/runs.db")) as runs:
                    runs.execute("create table if not exists run (number)")
                    runs.execute("insert into run values (?)", (number,))
                    runs.commit()
                    self.assertEqual(runs.execute("select count(*) from run").fetchone(), (number,))
            with contextlib.suppress(ImportError):
                from tokenizers import Tokenizer, models

                Tokenizer(models.WordLevel({"a": 0}, unk_token="a")).save("out/words.json")
                self.assertEqual(Tokenizer.from_file("out/words.json").get_vocab(), {"a": 0})
                self.write("words.txt", "b\n")
                self.assertEqual(models.WordPiece.read_file("words.txt"), {"b": 0})
        self.assertEqual(self.files(), ["./data/a.txt", "./old.txt"])

    def test_processes_find_what_the_program_wrote_and_change_nothing_else(self):
        import subprocess

        if all(subprocess.call(["unshare", *options, "true"]) for options in (["-m"], ["-Urm"])):
            self.skipTest("no mounts of a process's own")
        with self.sandbox():
            self.write("note.txt", "x")
            os.mkdir("sub")
            command = "cat note.txt > made.txt; rm old.txt; mkdir runs; echo -n two >> data/a.txt"
            subprocess.run(command, shell=True, check=True)
            self.assertEqual(os.system("test -e made.txt -a ! -e old.txt && exit 3") >> 8, 3)
            self.assertEqual(subprocess.check_output(["ls"], cwd="sub"), b"")
            self.assertEqual(sorted(os.listdir()), ["data", "made.txt", "note.txt", "runs", "sub"])
            for name, text in (("made.txt", "x"), ("data/a.txt", "onetwo")):
                with open(name) as file:
                    self.assertEqual(file.read(), text)
            self.assertFalse(os.path.exists("old.txt"))
            self.write("old.txt", "new")
            self.assertEqual(subprocess.check_output(["cat", "old.txt"]), b"new")
        self.assertEqual(self.files(), ["./data/a.txt", "./old.txt"])

    def test_there_is_no_network(self):
        import socket
        import urllib.request

        with self.sandbox():
            with self.assertRaisesRegex(OSError, "no network for a traced program: example.com"):
                urllib.request.urlopen("http://example.com")
            with self.assertRaisesRegex(OSError, "no network for a traced program: 192.0.2.1"):
                socket.create_connection(("192.0.2.1", 80))


class Batches(unittest.TestCase):
    def choose(self, options, of_loader=None, arguments=(), option=None):
        found = Found()
        found.options = {name: ((name,), value) for name, value in options.items()}
        found.of_loader = of_loader
        return choose_batch(arguments, found, option)

    def test_it_is_the_option_with_the_size_of_the_training_s_loader(self):
        self.assertEqual(self.choose({"--batch-size": 16}, 16).names, ("--batch-size",))
        two = {"--train-batch-size": 16, "--data-batch-size": 16}
        self.assertEqual(self.choose(two, 16).names, ("--train-batch-size",))
        self.assertEqual(self.choose({"--batch-size": 64}, 16).names, ("--batch-size",))  # of 4 ranks
        self.assertTrue(self.choose({}, 16).in_loaders)
        self.assertTrue(self.choose({"--batch-size": 10}, 16).in_loaders)
        self.assertEqual(self.choose({}, None, ["--lr=1", "batch_size=4"]).names, ("batch_size=",))

    def test_what_is_ambiguous_or_unknown_names_the_option_to_pass(self):
        with self.assertRaisesRegex(TraceError, "--batch-option --a-batch or --batch-option --b-batch$"):
            self.choose({"--a-batch": 16, "--b-batch": 16}, 16)
        with self.assertRaisesRegex(TraceError, "as --batch-option --batch-size"):
            self.choose({})
        self.assertEqual(self.choose({"--b": 3}, 16, option="--b").text, "the batch is --b (3 as typed)")

    def test_the_argument_is_replaced_or_added(self):
        for names, given, changed in (
            (("--batch-size",), ["--lr", "1"], ["--lr", "1", "--batch-size", "8"]),
            (("-b", "--batch-size"), ["-b", "4", "x"], ["-b", "8", "x"]),
            (("-b", "--batch-size"), ["-b4", "x"], ["-b8", "x"]),
            (("--batch-size",), ["--batch-size=4"], ["--batch-size=8"]),
            (("batch_size=",), ["a.py", "batch_size=4"], ["a.py", "batch_size=8"]),
            (("batch_size=",), ["a.py"], ["a.py", "batch_size=8"]),
        ):
            self.assertEqual(Batch(names).arguments(given, 8), changed)


if __name__ == "__main__":
    unittest.main()
