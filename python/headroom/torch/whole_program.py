"""Traces programs that train by themselves: commands, and functions that return no step.

Each trace is made by a copy of this process, which ends with the program's last step (steps.py).
"""

import contextlib
import fcntl
import os
import shutil
import struct
import tempfile
import termios

from .batches import Found, choose_batch
from .changes import Changes
from .child import end_child, in_child
from .draws import seed_python
from .errors import TraceError, left_out, refused_values
from .gpus import find_gpu
from .in_place import find_unshared_counts_in_child
from .program import complaint_of, describe_error, place_of
from .ranks import of_largest_rank
from .repeats import Repeats
from .sandbox import ENVIRONMENT, Sandbox
from .seeds import SEEDS, Seeds, facts_of
from .session import LoadedProgram, Trace, settings_of
from .standin import libraries, processes, saves
from .steps import Steps

_MOST_READS = 1000  # of the terminal


class WholeProgram:
    """Traces a Command. `describe` gives the wanted facts about a Trace, in the copy that made it."""

    def __init__(self, command, steps, device, describe, batch_option=None, compute=None):
        self.command = command
        self.steps = steps
        self.gpu = find_gpu(device)
        self.describe = describe
        self.batch_option = batch_option
        self.compute = compute
        self.seeds = Seeds()
        self.batch = None  # how it is changed, once that is known
        self.loaded = None
        self.stack = contextlib.ExitStack()

    def trace(self, output, batch=None, changes=None, speed=None, on_step=None):
        """Writes the trace to a file and returns the facts about it. Raises TraceError for what cannot be traced, and
        ChildError for a program that ends Python.
        """
        if self.loaded is None:
            self._load(host_is_gpu=False)
        if batch is not None and self.batch is None and self.command.kind != "function":
            found = self._in_copy(self._find_batch)
            self.batch = choose_batch(self.command.arguments, found, self.batch_option)
        arguments = (batch, changes or Changes(), speed, on_step)
        ranks = self.command.ranks
        if ranks == 1:
            return self._trace_rank(None, output, *arguments)
        return of_largest_rank(ranks, lambda rank: self._trace_rank(rank, output, *arguments))

    def _trace_rank(self, rank, output, *arguments):
        """trace() of one rank; None for a program of one process."""
        command = self.command if rank is None else self.command.of_rank(rank)

        def trace(path, seed):
            try:
                return self._in_copy(self._trace, command, os.path.abspath(path), *arguments, seed)
            except TraceError as error:
                if not self.loaded.tracer.compiled.refuse(error):
                    raise
                return trace(path, seed)

        facts = self.seeds.trace(output, trace)
        if facts is None:
            # The program has nothing on the GPU: trace it as if all of it were there.
            self._load(host_is_gpu=True)
            facts = self.seeds.trace(output, trace)
        return facts

    def _load(self, host_is_gpu):
        self.stack.close()
        find_unshared_counts_in_child()
        self.loaded = LoadedProgram(lambda: None, self.gpu, host_is_gpu, self.stack, self.compute)
        self.loaded.tracer.values.computing.seeds = SEEDS

    def _in_copy(self, work, *arguments):
        """Returns what `work` gives to `end_child` in a copy of this process, with a folder for the program's files."""
        folder = tempfile.mkdtemp(prefix="headroom-")
        results = self.loaded.tracer.results
        try:
            value, error, learned = in_child(lambda: work(folder, *arguments))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        results.learn(learned)  # for the next ones
        if error:
            raise error
        return value

    # In the copy.

    def _end(self, value, error=None):
        end_child((value, error, self.loaded.tracer.results.learned()))

    def _find_batch(self, folder):
        found = Found()

        def end():
            self._end(found)

        def take(sampler):
            found.take_loader(sampler)
            end()

        steps = Steps(self.loaded.tracer, self.loaded.changed, 1, end)
        steps.on_first_pass = take
        with contextlib.ExitStack() as stack:
            found.install(stack)
            self.loaded.begin(Changes(), None)
            self._run(folder, stack, steps, self.command)

    def _trace(self, folder, command, output, batch, changes, speed, on_step, seed):
        loaded = self.loaded
        seed_python(seed)
        tracer = loaded.tracer
        stack = contextlib.ExitStack()

        repeats = Repeats(tracer)

        def step_is_done(count):
            repeats.forget()
            loaded.forget_casts()
            if count == self.steps:
                loaded.changed.find_name()
            if on_step:
                on_step(count)

        def end():
            stack.close()
            if not tracer.recorder.count and not tracer.host_is_gpu:
                self._end(None)
            if not tracer.recorder.count:
                said = "the program ended without a tensor: give the command that trains, with the arguments that it needs"
                self._end(None, TraceError(said))
            loaded.finish(changes)
            if not steps.done and left_out():  # of a program that trains nothing, and caught the error
                tracer.assumed[left_out()] = True
            settings = settings_of(command.title, batch, max(steps.done, 1), tracer)
            trace = Trace(loaded, settings, 0)
            try:
                trace.save(output)
            except OSError as unwritable:
                self._end(None, unwritable)
            self._end(
                {
                    **self.describe(trace),
                    **facts_of(trace),
                    "steps": steps.done,
                }
            )

        repeats.install(stack)
        steps = Steps(tracer, loaded.changed, self.steps, end, step_is_done)
        if self.batch is not None and batch is not None:
            self.batch.install(stack, batch, self.steps)
            command = command.with_arguments(self.batch.arguments(command.arguments, batch))
        loaded.begin(changes, speed, seed)
        loaded.changed.begin()
        if on_step:
            on_step(0)
        self._run(folder, stack, steps, command, batch)

    def _run(self, folder, stack, steps, command, batch=None):
        """Runs the program until its end, which calls that of `steps`."""
        os.environ.update(ENVIRONMENT)
        os.dup2(_terminal(), 0)
        steps.install(stack)
        run_process = processes.install(stack)
        saves.install(self.loaded.tracer, stack)
        libraries.shorten_trainings(stack, steps)
        sandbox = Sandbox(folder)
        sandbox.install(stack)
        libraries.read_copies(stack, sandbox)
        error = None
        try:
            with refused_values():
                command.run(batch)
                if not self.loaded.tracer.recorder.count:
                    run_process()
        except (SystemExit, KeyboardInterrupt) as ended:
            if not steps.done and getattr(ended, "code", None) not in (None, 0):
                error = complaint_of(ended) or f"{place_of(ended)}the program ended ({ended.code}) before its first step"
        except TraceError as refused:
            error = str(refused)
        except Exception as failed:
            error = describe_error(failed)
        if error and not steps.is_finished:  # what follows the last step is no part of the trace
            self._end(None, self.loaded.tracer.compiled.mark(TraceError(error)))
        steps.end()


def _terminal():
    """Opens a terminal whose input is at its end, for programs that ask for its size. Its other side stays open with it."""
    try:
        keys, terminal = os.openpty()
    except OSError:  # none is left
        return os.open(os.devnull, os.O_RDONLY)
    os.write(keys, b"\x04" * _MOST_READS)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
    return terminal


def trace_command(
    command, output, batch, steps, device, batch_option=None, on_step=None, compute=None
):
    """Traces a Command into a file. Returns a few facts: its steps, its allocations and the most that is live."""

    def describe(trace):
        return {"allocations": len(trace.blocks)}

    program = WholeProgram(command, steps, device, describe, batch_option, compute)
    facts = program.trace(output, batch, on_step=on_step)
    return {**facts, "batch": program.batch.text if program.batch else ""}
