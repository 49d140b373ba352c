"""Answers of tests for NaN and infinities about tensors with unknown values: that they are finite, as in a training
that continues. Values that follow from such tests by logic alone are known; their elements are not data.
"""

import torch
from torch._subclasses.fake_tensor import FakeTensor

from .unknown import TESTS

_aten = torch.ops.aten


def _negation(parts):
    return not parts[0]


def _same(parts):
    return parts[0] if len(set(parts)) == 1 else None


_RULES = {
    getattr(getattr(_aten, name), overload): rule
    for rule, names in (
        (any, ("any", "logical_or", "bitwise_or")),
        (all, ("all", "logical_and", "bitwise_and")),
        (_negation, ("logical_not", "bitwise_not")),
        (_same, ("_to_copy", "clone", "detach", "stack", "cat")),
    )
    for name in names
    for overload in getattr(_aten, name).overloads()
}


def _version(tensor):
    """Changes with each write into a tensor or a view of it."""
    return 0 if tensor.is_inference() else tensor._version


def _mark(tensor, answer):
    if answer is not None:
        tensor._headroom_test = (answer, _version(tensor))


def answer_of(tensor):
    """Returns the value of all elements of a tensor that follows from such tests; None for other tensors."""
    answer, version = getattr(tensor, "_headroom_test", (None, None))
    return answer if version is not None and version == _version(tensor) else None


def follow(func, inputs, result):
    """Marks the result of an op whose inputs follow from such tests."""
    rule = _RULES.get(func)
    if rule is not None and inputs and isinstance(result, FakeTensor):
        parts = [answer_of(tensor) for tensor in inputs]
        if None not in parts:
            _mark(result, rule(parts))


def tests():
    """Returns the tests by their names in PyTorch."""
    return {name: _test(getattr(torch, name), answer) for name, answer in TESTS.items()}


def _test(original, answer):
    def test(tensor):
        result = original(tensor)
        if isinstance(tensor, FakeTensor):
            _mark(result, answer)
        return result

    return test
