"""Traces one program repeatedly at the request of another process, so that the program is loaded once.

Each trace is made by a copy of the process that has loaded the program, so that traces do not affect each other.
Requests and answers are lines of JSON on stdin and stdout. A request has `output`, the file for the trace, and may have
`batch`, `changes` (changes.py) and `speed` (costs.py). Before work that takes long an answer that has only `said`, one
line, comes before the last one. An answer has `error`, one line; `failure`, one line, if Python
ended; or the facts about the program. The program's own output goes to stderr.
"""

import contextlib
import importlib
import json
import os
import sys
import threading

import torch

from .changes import Changes, caching_configs, name_in_program
from .child import ChildError, in_child
from .command import of_function
from .computing import Computing
from .costs import Speed
from .draws import seed_python
from .errors import TraceError
from .gpus import find_gpu
from .in_place import find_unshared_counts_in_child
from .program import function_of, running, trace_program
from .seeds import SEEDS, Seeds, facts_of
from .session import LoadedProgram, Trace, TrainsByItself, settings_of
from .standin.compiled import unpatched
from .whole_program import WholeProgram


def describe(trace):
    """Returns the facts that `headroom solve` needs about a traced program beside its trace."""
    costs, program = trace.costs, trace.changed
    answer = {"us_per_step": costs.total_us() if costs else 0, "modules": []}
    if not program.models:
        return answer
    model = program.largest_model()
    modules = dict(model.named_modules())
    answer["model"] = type(model).__name__
    answer["name"] = program.name or name_in_program(trace.step, model) or "model"
    answer["uses_cache"] = bool(caching_configs(model))
    answer["normalizes_batches"] = any(
        isinstance(module, torch.nn.modules.batchnorm._BatchNorm) for module in modules.values()
    )
    head = program.loss.found and program.loss.found()
    answer["head"] = next((path for path, module in modules.items() if module is head), "")
    for path, module in modules.items():
        if path:
            answer["modules"].append(
                {
                    "path": path,
                    "us": costs.modules.get(path, 0) if costs else 0,
                    "children": len(list(module.children())),
                }
            )
    return answer


class Server:
    """Answers requests about "train.py:make_step" or a Command; the program is loaded at the first."""

    def __init__(self, program, steps, device, batch_option=None, compute=None):
        self.program = program
        self.steps = steps
        self.gpu_name = device
        self.batch_option = batch_option
        self.compute = compute
        self.seeds = Seeds()
        self.whole = None  # the WholeProgram of what trains by itself
        self.loaded = None
        self.stack = contextlib.ExitStack()
        self.has_threads = False  # of its own, which a copy of the process would not have

    def answer(self, request):
        try:
            if self.whole is None and not isinstance(self.program, str):
                self._take_whole(self.program)
            if self.whole is not None:
                return self._trace_whole(request)
            if self.loaded is None and not self.has_threads:
                self._load(host_is_gpu=False)
            if self.has_threads:
                return self._trace_here(request)
            reply = self._trace_function(request)
            if reply is None:
                # The program names no device: trace it as if all of it were on the GPU.
                self._load(host_is_gpu=True)
                reply = self._trace_function(request)
            if "trains" in reply:
                self.stack.close()
                self._take_whole(of_function(self.program))
                return self._trace_whole(request)
            return reply
        except (TraceError, ValueError) as error:
            return {"error": " ".join(str(error).split())}
        except ChildError as error:
            title = self.whole.command.title if self.whole else self.program
            return {"failure": f"{title}: {error}"}

    def _take_whole(self, command):
        self.whole = WholeProgram(
            command, self.steps, self.gpu_name, describe, self.batch_option, self.compute
        )

    def _trace_whole(self, request):
        reply = self.whole.trace(request["output"], request.get("batch"), **_changes_of(request))
        if self.whole.batch:
            reply["batch"] = self.whole.batch.text
        return reply

    def _load(self, host_is_gpu):
        self.stack.close()
        self.loaded = None
        gpu = find_gpu(self.gpu_name)
        find_unshared_counts_in_child()
        threads = threading.active_count()
        with contextlib.ExitStack() as stack, running(self.program):
            self.loaded = LoadedProgram(
                lambda: function_of(self.program), gpu, host_is_gpu, stack, self.compute
            )
            self.loaded.tracer.values.computing.seeds = SEEDS
            self.has_threads = threading.active_count() > threads
            if not self.has_threads:
                self.stack = stack.pop_all()

    def _trace_function(self, request):
        results = self.loaded.tracer.results

        def trace(path, seed):
            known = set(sys.modules)
            reply, error, learned, modules = in_child(
                lambda: (*self._trace({**request, "output": path}, seed), results.learned(), _new_modules(known))
            )
            results.learn(learned)  # for the next ones
            with unpatched(), contextlib.suppress(ImportError):
                for name in modules:
                    importlib.import_module(name)
            if error and self.loaded.tracer.compiled.refuse(error):
                return trace(path, seed)
            return {"error": " ".join(str(error).split())} if error else reply

        return self.seeds.trace(request["output"], trace)

    def _trace(self, request, seed):
        """In a copy of the process; (the answer, None) or (None, the error). The answer is None where the program has
        nothing on the GPU that it could be told of.
        """
        try:
            loaded, batch = self.loaded, request.get("batch")
            torch.set_num_threads(os.cpu_count() or 1)  # for values that are computed
            seed_python(seed)
            with running(self.program):
                loaded.run(batch, self.steps, seed=seed, **_changes_of(request))
            self.stack.close()
            if not loaded.tracer.recorder.count and not loaded.tracer.host_is_gpu:
                return None, None
            settings = settings_of(self.program, batch, self.steps, loaded.tracer)
            return _answer(Trace(loaded, settings, 0), request), None
        except TrainsByItself:
            return {"trains": True}, None
        except (TraceError, ValueError) as error:
            return None, loaded.tracer.compiled.mark(error)

    def _trace_here(self, request):
        trace = trace_program(
            self.program,
            request.get("batch"),
            self.steps,
            self.gpu_name,
            compute=self.compute,
            **_changes_of(request),
        )
        return _answer(trace, request)


def _new_modules(known):
    """Returns the modules of PyTorch that were imported in this process and are not known, in that order."""
    return [name for name in sys.modules if name.startswith("torch.") and name not in known]


def _changes_of(request):
    return {
        "changes": Changes.of(request.get("changes", {})),
        "speed": Speed(**request["speed"]) if "speed" in request else None,
    }


def _answer(trace, request):
    trace.save(request["output"])
    return {**describe(trace), **facts_of(trace)}


def serve(program, steps, device, batch_option=None, compute=None):
    """Answers until stdin ends. The program gets no stdin, and writes to stderr."""
    requests = os.fdopen(os.dup(0))
    answers = os.fdopen(os.dup(1), "w")
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    torch.set_num_threads(1)  # a copy of a process with threads of OpenMP would wait for them
    server = Server(program, steps, device, batch_option, compute)

    def write(answer):
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    Computing.say = staticmethod(lambda text: write({"said": text}))
    for line in requests:
        write(server.answer(json.loads(line)))
