"""Commands as people type them, such as `python train.py --lr 1e-4`, `torchrun --nproc-per-node 4 train.py` or
`train.ipynb`: the program that Python runs, its arguments and its environment.

Knows launchers and no tracer.
"""

import dataclasses
import os
import re
import runpy
import shlex
import shutil
import sys

from . import launchers, notebook
from .errors import TraceError

_PYTHON = re.compile(r"(python|pypy)[\d.]*(\.exe)?$")
_VARIABLE = re.compile(r"[A-Za-z_]\w*=")
# The options of Python that take a word of their own.
_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")


@dataclasses.dataclass(frozen=True)
class Command:
    """A program to run: a `kind` of "script", "module", "code", "notebook" or "function" ("train.py:main"), its file, name or
    text, and its arguments.
    """

    words: tuple
    kind: str
    target: str
    arguments: tuple = ()
    environment: dict = dataclasses.field(default_factory=dict)

    @property
    def ranks(self):
        """Returns the number of processes that train together, as far as the command says so."""
        return int(self.environment.get("WORLD_SIZE", 1))

    def of_rank(self, rank):
        """The command in the process of that rank."""
        local = rank % int(self.environment.get("LOCAL_WORLD_SIZE", self.ranks))
        environment = {**self.environment, "RANK": str(rank), "LOCAL_RANK": str(local)}
        return dataclasses.replace(self, environment=environment)

    @property
    def title(self):
        return shlex.join(self.words)

    def with_arguments(self, arguments):
        return dataclasses.replace(self, arguments=tuple(arguments))

    def run(self, batch=None):
        """Runs it as Python's main program, with its arguments and its environment; a function is given its batch."""
        os.environ.update(self.environment)
        folders = self.environment.get("PYTHONPATH", "").split(os.pathsep)  # which Python reads when it starts
        sys.path[1:1] = [os.path.abspath(folder) for folder in folders if folder]
        sys.argv = [self.target, *self.arguments]
        if self.kind == "function":
            from .program import call_function

            call_function(self.target, batch)
        elif self.kind == "notebook":
            notebook.run(self.target)
        elif self.kind == "module":
            sys.path[0] = os.getcwd()
            sys.argv[0] = "-m"
            runpy.run_module(self.target, run_name="__main__", alter_sys=True)
        elif self.kind == "code":
            sys.path[0] = ""
            sys.argv[0] = "-c"
            exec(compile(self.target, "<string>", "exec"), {"__name__": "__main__"})
        else:
            folder = self.target if os.path.isdir(self.target) else os.path.dirname(self.target)
            sys.path[0] = os.path.abspath(folder)
            runpy.run_path(self.target, run_name="__main__")


def of_function(program):
    """The Command of "train.py:main", a function that trains."""
    return Command((program,), "function", program)


def parse(words, ranks=None):
    """The Command of the words after `--`, in `ranks` processes of one machine if that is given; TraceError where they
    are none that Python runs.
    """
    words = tuple(words)
    environment = {}
    rest = list(words)
    if rest and os.path.basename(rest[0]) == "env":
        rest.pop(0)
    while rest and _VARIABLE.match(rest[0]):
        name, _, value = rest.pop(0).partition("=")
        environment[name] = value
    if not rest:
        raise TraceError("no command after --; give one, as -- python train.py")
    kind, target, arguments, more = _program(rest)
    if ranks:
        more = {**more, **launchers.rank_environment(ranks, ranks)}
    return Command(words, kind, target, tuple(arguments), {**environment, **more})


def _program(words):
    """(kind, target, arguments, environment) of what the words run."""
    first, rest = words[0], words[1:]
    name = os.path.basename(first)
    found = next((word for word in words if word.endswith(".ipynb")), None)
    if found and not _PYTHON.match(name):  # by itself, or through jupyter or papermill
        return "notebook", _existing(found), (), {}
    if _PYTHON.match(name):
        return _of_python(rest)
    if name in launchers.BY_NAME:
        return _launched(launchers.BY_NAME[name], rest)
    if name.endswith(".py"):
        return "script", _existing(first), rest, {}
    path = first if os.sep in first else shutil.which(first)
    if path is None or not os.path.isfile(path):
        raise TraceError(f"{first}: no such command")
    if not _is_python_script(path):
        raise TraceError(
            f"{first} is not a program of Python: give the command of Python that it runs, as -- python train.py"
        )
    return "script", path, rest, {}


def _of_python(words):
    words = list(words)
    while words:
        word = words.pop(0)
        if word in ("-m", "-c"):
            if not words:
                raise TraceError(f"Python's option {word} needs a word after it")
            target = words.pop(0)
            if word == "-c":
                return "code", target, words, {}
            if target in launchers.BY_MODULE:
                return _launched(launchers.BY_MODULE[target], words)
            return "module", target, words, {}
        if word in _WITH_VALUE:
            words[:1] = []
        elif word.endswith(".ipynb"):
            return "notebook", _existing(word), words, {}
        elif word == "-" or not word.startswith("-"):
            return "script", _existing(word), words, {}
    raise TraceError("the command names no program for Python; give one, as -- python train.py")


def _launched(launcher, words):
    is_module, target, arguments, environment = launcher(words)
    if is_module:
        return "module", target, arguments, environment
    if target.endswith(".py") or os.path.exists(target):
        return "script", _existing(target), arguments, environment
    kind, target, arguments, more = _program([target, *arguments])
    return kind, target, arguments, {**environment, **more}


def _existing(path):
    if path == "-":
        raise TraceError("a program on standard input cannot be traced: give its file")
    if not os.path.exists(path):
        raise TraceError(f"{path}: no such file")
    return path


def _is_python_script(path):
    """Returns true if the file's first lines start Python, as those of pip's commands do."""
    with open(path, "rb") as file:
        head = file.read(500).splitlines()[:2]
    return bool(head) and head[0].startswith(b"#!") and b"python" in b" ".join(head)
