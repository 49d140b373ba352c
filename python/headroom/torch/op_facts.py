"""Facts about ops: what they do with the values of their arguments, and where their results have some of their own."""

import functools

import torch

from .results import tensors_in

_aten = torch.ops.aten
_FILLED = {  # with the value that fills their results, or its place among the arguments
    "zeros": 0,
    "ones": 1,
    "zeros_like": 0,
    "ones_like": 1,
    "new_zeros": 0,
    "new_ones": 1,
    "empty": 0,
    "empty_strided": 0,
    "empty_like": 0,
    "new_empty": 0,
    "new_empty_strided": 0,
}
_FACTORIES = {
    _aten.full.default,
    _aten.arange.default,
    _aten.arange.start,
    _aten.arange.start_step,
    _aten.linspace.default,
    _aten.logspace.default,
    _aten.eye.default,
    _aten.eye.m,
    _aten.tril_indices.default,
    _aten.triu_indices.default,
    _aten.scalar_tensor.default,
    _aten._efficientzerotensor.default,
    _aten.lift_fresh.default,
    _aten.hann_window.default,
}
_FULL = {_aten.full_like.default: 1, _aten.new_full.default: 2}
# Overwrite their first argument, whatever it was.
_FILLS = "zero_ fill_ copy_ uniform_ normal_ random_ bernoulli_ exponential_ log_normal_ geometric_ cauchy_".split()
_WRITES_UNSAID = {_aten.native_batch_norm.default: (3, 4)}  # its schema does not say so


class Op:
    """Facts about an op: what it does with values."""

    __slots__ = ("writes", "fills", "is_random", "is_factory", "filled", "moves_views")

    def __init__(self, func):
        schema = func._schema
        name = schema.name.partition("::")[2]
        arguments = list(enumerate(schema.arguments))
        self.moves_views = torch.Tag.inplace_view in func.tags
        self.writes = [
            (i, a.name)
            for i, a in arguments
            if a.alias_info is not None and a.alias_info.is_write and not self.moves_views
        ]
        self.writes += [(i, schema.arguments[i].name) for i in _WRITES_UNSAID.get(func, ())]
        self.fills = name in _FILLS
        self.is_random = torch.Tag.nondeterministic_seeded in func.tags
        self.is_factory = func in _FACTORIES
        self.filled = _FULL.get(func) if func in _FULL else None
        if self.filled is not None:
            self.filled = ("argument", self.filled)
        elif func.namespace == "aten" and name in _FILLED:
            self.filled = ("value", _FILLED[name])

    def written(self, args, kwargs):
        found = []
        for position, name in self.writes:
            value = args[position] if position < len(args) else kwargs.get(name)
            found += tensors_in(value)
        return found


@functools.lru_cache(maxsize=None)
def op_of(func):
    """Returns the Op of a function of PyTorch."""
    return Op(func)
