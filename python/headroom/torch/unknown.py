"""Numbers that a trace does not know, as item() gives them: they may be printed and summed up, and nothing may
depend on them.

They are NaN, which C code keeps whatever it computes, so that one that reaches an op is seen there (values.py).
"""

import math
import numbers

from torch._subclasses.fake_tensor import FakeTensor

from .errors import data_dependent

# A training goes on where its loss is a number, so that is what tests for others say.
TESTS = {"isfinite": True, "isnan": False, "isinf": False}


class UnknownNumber(float):
    """The value of a tensor whose value is unknown."""

    def __new__(cls, what):
        self = float.__new__(cls, math.nan)
        self.what = what
        return self

    def __getnewargs__(self):
        return (self.what,)

    def _same(self, *others):
        is_number = all(isinstance(other, (numbers.Number, type(None))) for other in others)
        return (
            self if is_number else NotImplemented
        )  # a list times it is refused, a tensor a tensor

    def _two(self, other):
        return (self, self) if isinstance(other, numbers.Number) else NotImplemented

    def _refuse(self, *_):
        raise data_dependent(self.what)

    def __repr__(self):
        return "nan"

    def __format__(self, form):
        try:
            return format(math.nan, form)
        except ValueError:  # an integer is wanted
            return "nan"

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        """NumPy's functions of numbers and arrays, such as numpy.isfinite."""
        if method == "__call__" and all(isinstance(value, numbers.Number) for value in inputs):
            return TESTS.get(ufunc.__name__, self)
        inputs = [math.nan if value is self else value for value in inputs]
        return getattr(ufunc, method)(*inputs, **options)

    __str__ = __repr__
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = (
        _same
    )
    __pow__ = __rpow__ = __mod__ = __rmod__ = __floordiv__ = __rfloordiv__ = __neg__ = __pos__ = (
        __abs__
    ) = _same
    __round__ = conjugate = _same
    real = property(_same)
    __divmod__ = __rdivmod__ = _two
    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = __bool__ = __int__ = __index__ = (
        __trunc__
    ) = _refuse
    __floor__ = __ceil__ = __hash__ = __complex__ = is_integer = as_integer_ratio = hex = _refuse


def unknown_among(known, values):
    """Returns, for max and min, the first of the values that a trace does not know, or None. `known` gives the real
    tensor of a fake one.
    """
    for value in values:
        if isinstance(value, UnknownNumber) or (
            isinstance(value, FakeTensor) and known(value) is None
        ):
            return value
    return None


def holds_unknown(values):
    """Returns true if a number among the arguments of an op is unknown, or NaN, which cannot be told apart there."""
    if isinstance(values, dict):
        values = values.values()
    return any(
        (
            value != value
            if isinstance(value, float)
            else isinstance(value, (list, tuple)) and holds_unknown(value)
        )
        for value in values
    )


def without_unknown(data):
    """The data of torch.tensor with zeros in the place of unknown numbers, and whether there were any."""
    if isinstance(data, UnknownNumber):
        return 0.0, True
    if not isinstance(data, (list, tuple)):
        return data, False
    parts = [without_unknown(part) for part in data]
    if not any(is_unknown for _, is_unknown in parts):
        return data, False
    return [part for part, _ in parts], True
