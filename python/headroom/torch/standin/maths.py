"""Python's module math, whose functions take a number without asking it whether it is known."""

import functools
import math

import torch

from ..unknown import TESTS, UnknownNumber
from .patch import patch

_ASK = ("floor", "ceil", "trunc")


def install(stack):
    for name, function in vars(math).copy().items():
        if not name.startswith("_") and name not in _ASK and callable(function):
            patch(stack, math, name, _taking_unknown(function))


@functools.lru_cache(maxsize=None)
def _taking_unknown(function):
    """The function, which gives an unknown number for one."""

    @functools.wraps(function)
    def take(*args, **kwargs):
        unknown = next((value for value in args if isinstance(value, UnknownNumber)), None)
        if unknown is None:
            return function(*args, **kwargs)
        if function is _isclose:
            return bool(unknown)  # refuses
        return TESTS.get(function.__name__, unknown)

    builtins = torch.jit._builtins
    if builtins._find_builtin(function):  # for torch.jit.script
        builtins._register_builtin(take, builtins._find_builtin(function))
    return take


_isclose = math.isclose
