"""Traces one program again and again, as another process asks for it, so that PyTorch is loaded once.

Requests and answers are lines of JSON on stdin and stdout. A request has `output`, the file for the trace, and may
have `batch`, `changes` (changes.py) and `speed` (costs.py). An answer has `error`, one line, or what is known of the
program. The program's own output goes to stderr.
"""

import json
import os
import sys

import torch

from .changes import Changes, caching_configs, name_in_program
from .costs import Speed
from .errors import TraceError
from .program import trace_program


def describe(trace):
    """What `headroom solve` needs to know of a traced program beside its trace."""
    costs, program = trace.costs, trace.changed
    answer = {"us_per_step": costs.total_us() if costs else 0, "modules": []}
    if not program.models:
        return answer
    model = max(program.models, key=lambda m: sum(p.numel() for p in m.parameters()))
    modules = dict(model.named_modules())
    answer["model"] = type(model).__name__
    answer["name"] = name_in_program(trace.step, model) or "model"
    answer["uses_cache"] = bool(caching_configs(model))
    answer["normalises_batches"] = any(
        isinstance(module, torch.nn.modules.batchnorm._BatchNorm) for module in modules.values()
    )
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


def answer(request, program, steps, device):
    trace = trace_program(
        program,
        request.get("batch"),
        steps,
        device,
        Changes.of(request.get("changes", {})),
        Speed(**request["speed"]) if "speed" in request else None,
    )
    trace.save(request["output"])
    return describe(trace)


def serve(program, steps, device):
    """Answers until stdin ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        try:
            reply = answer(json.loads(line), program, steps, device)
        except (TraceError, ValueError) as error:
            reply = {"error": " ".join(str(error).split())}
        answers.write(json.dumps(reply) + "\n")
        answers.flush()
