"""L-BFGS, whose number of evaluations and whose history follow from the values of gradients. A trace does as many
evaluations as it may, one for each search along a line, and fills the history in the first step.
"""

import inspect
import linecache
import os
import sys

import torch

from .patch import patch

# Conditions of torch/optim/lbfgs.py that hold: the history grows, and a search has found its point. Others end a step early.
_HOLD = ("if ys >", "if gtd_new >= 0", "d_norm < tolerance_change")
_FILE = inspect.getfile(torch.optim.LBFGS)
_OWN = os.path.dirname(os.path.dirname(__file__))


def answer(frame):
    """Returns the assumed value of an unknown condition in L-BFGS; None elsewhere."""
    if frame.f_code.co_filename != _FILE:
        return None
    line = linecache.getline(_FILE, frame.f_lineno)
    return any(text in line for text in _HOLD)


def asks_for_number():
    """Returns true if L-BFGS itself asks for the number that scales a direction."""

    def is_between(code):  # a mode is, where the program has a default device
        return code.co_filename.startswith(_OWN) or "/torch/_" in code.co_filename or code.co_name == "__torch_function__"

    frame = sys._getframe(1)
    while frame and is_between(frame.f_code):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename == _FILE


def install(stack):
    original = torch.optim.LBFGS.step

    def step(optimizer, closure):
        result = original(optimizer, closure)
        size = optimizer.param_groups[0]["history_size"]
        for state in optimizer.state.values():
            directions, steps, factors = (state.get(name) for name in ("old_dirs", "old_stps", "ro"))
            while directions and len(directions) < size:
                directions.append(torch.empty_like(directions[0]))
                steps.append(torch.empty_like(steps[0]))
                factors.append(factors[0])
        return result

    patch(stack, torch.optim.LBFGS, "step", step)
