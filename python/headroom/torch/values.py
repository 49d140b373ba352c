"""Small tensors whose values follow from constants: a trace knows them and computes with them.

Programs branch on such values: drop-path rates from a linspace, the steps of an optimizer, a mask of ones. Single
random numbers, permutations and samples of indices are also known: they decide if a layer is skipped and the order of
data, and are not data. All other values are unknown.
"""

import weakref

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    UnsupportedOperatorException,
)
from torch.utils._pytree import tree_map

from . import finite
from .errors import called_function, data_dependent, refusal
from .results import tensors_in
from .unknown import holds_unknown

_MAX_ELEMENTS = 1 << 16
_MAX_WHOLE = 1 << 20  # of whole numbers and booleans, as masks have

_aten = torch.ops.aten
_FACTORIES = {
    _aten.zeros.default,
    _aten.ones.default,
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
# Their results follow from shapes alone, whatever the values of their tensors are.
_LIKE = {
    _aten.zeros_like.default,
    _aten.ones_like.default,
    _aten.full_like.default,
    _aten.new_zeros.default,
    _aten.new_ones.default,
    _aten.new_full.default,
}
_INDICES = {_aten.randperm.default, _aten.randperm.generator, _aten.multinomial.default}
_MAX_INDICES = 1 << 26
# Draw random numbers into a tensor, whatever its values were.
_DRAWS_INTO = {
    _aten.uniform_.default,
    _aten.normal_.default,
    _aten.random_.default,
    _aten.random_.to,
    getattr(_aten.random_, "from"),
    _aten.bernoulli_.float,
    _aten.exponential_.default,
}


class KnownValues:
    def __init__(self):
        self._real = weakref.WeakKeyDictionary()  # fake tensor -> real tensor
        self._storages = {}

    def of(self, tensor):
        """Returns the real tensor of a fake one, or None if its values are unknown."""
        if not isinstance(tensor, FakeTensor):
            return tensor
        real = getattr(tensor, "_headroom_value", None)
        if real is None:
            return None
        return real if real.untyped_storage()._cdata not in self._storages else None

    def run(self, tracer, func, args, kwargs, inputs):
        """Runs an op on fake tensors, and on known values too if all of its inputs have one."""
        known = self._inputs(func, inputs)
        if known and (holds_unknown(args) or holds_unknown(kwargs)):
            known = None
        try:
            result = tracer.results.run(func, args, kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            if known is None:
                raise data_dependent(_public_name(func)) from error
            with torch.utils._python_dispatch._disable_current_modes():
                real = self._compute(func, args, kwargs)
            return tree_map(lambda value: self._fake(tracer, value), real)
        except UnsupportedOperatorException as error:
            raise refusal(
                f"{_public_name(func)} cannot be traced: PyTorch does not know the shapes of its "
                "results without running it; register them with torch.library.register_fake"
            ) from error
        except Exception as error:
            if holds_unknown(args) or holds_unknown(kwargs):  # for a size, as of torch.arange
                raise data_dependent("item()") from error
            raise
        if known is None:
            self.forget_written(func, args, kwargs)
            finite.follow(func, inputs, result)
            return result
        if func._schema.is_mutable and not func._schema.returns:  # a list of steps of an optimizer
            with torch.utils._python_dispatch._disable_current_modes():
                self._compute(func, args, kwargs)
            return result
        outputs = tensors_in(result)
        most = _MAX_INDICES if func in _INDICES else 1 if _is_random(func) else None
        if not outputs or any(out.numel() > (most or _most(out)) for out in outputs):
            self.forget_written(func, args, kwargs)
            return result
        with torch.utils._python_dispatch._disable_current_modes():
            try:
                real = self._compute(func, args, kwargs)
            except (RuntimeError, NotImplementedError):
                self.forget_written(func, args, kwargs)
                return result
        reals = tensors_in(real)
        for out, value in zip(outputs, reals):
            if isinstance(out, FakeTensor):
                out._headroom_value = value
        return result

    def are_known(self, tensors):
        """Returns true if there are tensors, and all of them are small and have known values."""
        return bool(tensors) and all(
            tensor.numel() <= _most(tensor) and self.of(tensor) is not None for tensor in tensors
        )

    def _inputs(self, func, inputs):
        """True if every input is known, None otherwise."""
        if func in _LIKE:
            return True if all(t.numel() <= _most(t) for t in inputs) else None
        if not inputs:
            return True if func in _FACTORIES or _is_random(func) else None
        if func in _DRAWS_INTO:
            return True if inputs[0].numel() == 1 else None
        if _is_random(func) and func not in _INDICES:
            return None
        return True if self.are_known(inputs) else None

    def _compute(self, func, args, kwargs):
        def real(leaf):
            if isinstance(leaf, FakeTensor):
                value = self.of(leaf)
                return (
                    torch.empty_strided(leaf.size(), leaf.stride(), dtype=leaf.dtype)
                    if value is None
                    else value
                )
            return leaf

        with torch.no_grad():
            return func(*tree_map(real, args), **tree_map(real, kwargs))

    def forget_written(self, func, args, kwargs):
        """An op has written unknown values into tensors: they, and their views, are known no more."""
        if not func._schema.is_mutable:
            return
        for argument, value in zip(func._schema.arguments, args):
            if argument.alias_info is not None and argument.alias_info.is_write:
                for tensor in tensors_in(value):
                    self.forget(tensor)
        for argument in func._schema.arguments:
            if (
                argument.name in kwargs
                and argument.alias_info is not None
                and argument.alias_info.is_write
            ):
                for tensor in tensors_in(kwargs[argument.name]):
                    self.forget(tensor)

    def forget(self, tensor):
        """The values of a tensor, and of its views, are known no more."""
        if isinstance(tensor, FakeTensor):
            real = getattr(tensor, "_headroom_value", None)
            if real is not None:
                # Kept, so that no other storage gets the address.
                self._storages[real.untyped_storage()._cdata] = real
                tensor._headroom_value = None

    def _fake(self, tracer, value):
        if not isinstance(value, torch.Tensor):
            return value
        with tracer.fake_mode:
            fake = torch.empty_strided(value.size(), value.stride(), dtype=value.dtype)
        fake._headroom_value = value
        return fake


def _most(tensor):
    """The most elements of which a trace knows values of its type."""
    return _MAX_ELEMENTS if tensor.is_floating_point() else _MAX_WHOLE


def _is_random(func):
    return torch.Tag.nondeterministic_seeded in func.tags


def _public_name(func):
    """Returns a program's name for an op; an op that reads a number runs within another."""
    if func is _aten._local_scalar_dense.default:
        return called_function() or "item()"
    return func.overloadpacket.__name__.lstrip("_")
