"""Numbers that a trace has not computed, as item() gives them: they may be printed and summed up, and are computed
where something depends on them.

They are NaN, which C code keeps whatever it computes, so that one that reaches an op is seen there (values.py).
"""

import contextlib
import functools
import math
import numbers
import operator
import sys

from torch._subclasses.fake_tensor import FakeTensor

from .branches import formats_text, larger_side, next_turn, passing
from .errors import TraceError, data_dependent, forget_refusal

# A training goes on where its loss is a number, so that is what tests for others say.
TESTS = {"isfinite": True, "isnan": False, "isinf": False}


ENDS_LOOP = "a value that a trace does not know ends the loop; it is traced three times, and more may take more"
MOST_SECONDS = 5  # to compute a number that two sides of a condition could do without


class UnknownNumber(float):
    """The value of a tensor whose value is unknown. `compute` gives it, within a number of seconds; None where nothing
    does.
    """

    def __new__(cls, what, compute=None, is_whole=False):
        self = float.__new__(cls, math.nan)
        self.what = what
        self.compute = compute
        self.is_whole = is_whole
        return self

    def __getnewargs__(self):
        return (self.what,)

    def __reduce__(self):
        return (UnknownNumber, (self.what,))

    @staticmethod
    def tell(said):
        """Adds what is assumed at the user's line to the answer; of a trace (standin/tensors.py)."""

    def known(self, *limit):
        """The number, which is computed now. Raises a refusal."""
        if self.compute is None:
            raise data_dependent(self.what)
        return self.compute(*limit)

    def _two(self, other):
        if not isinstance(other, numbers.Number):
            return NotImplemented
        return self // other, self % other

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
    real = property(lambda self: self)
    __divmod__ = __rdivmod__ = _two
    __bool__ = lambda self: self._decide(bool, None)
    __hash__ = lambda self: hash(self.known())

    def _decide(self, function, other):
        """The truth of a comparison. A check that only raises is passed."""
        frame = sys._getframe(2)
        answer = passing(frame)
        if answer is not None:
            return answer
        if isinstance(other, float) and math.isinf(other) and function in _ORDERS:
            return function(0.0, other)
        others = () if other is None else (other,)
        answer = larger_side(frame)
        compute = _later(function, (self, *others))
        if answer is None and compute is None:
            answer = next_turn(frame)
            if answer is not None:
                self.tell(ENDS_LOOP)
        if answer is None:
            return compute() if compute else self.known()
        try:
            return compute(MOST_SECONDS) if compute else answer
        except TraceError:
            forget_refusal()
            return answer


_ORDERS = (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)


def _later(function, operands):
    """A function that computes one of numbers of which some are unknown; None where one of them never is known."""
    if any(isinstance(value, UnknownNumber) and value.compute is None for value in operands):
        return None
    return lambda *limit: function(
        *[value.known(*limit) if isinstance(value, UnknownNumber) else value for value in operands]
    )


def _arithmetic(name):
    function = getattr(float, name)

    def method(self, *others):
        if not all(isinstance(other, (numbers.Number, type(None))) for other in others):
            return NotImplemented  # a list times it is refused, a tensor a tensor
        return UnknownNumber(self.what, _later(_by_name(name), (self, *others)))

    return functools.wraps(function)(method)


def _by_name(name):
    """A method of numbers, of whole ones too."""

    def function(number, *others):
        result = getattr(number, name)(*others)
        return getattr(float(number), name)(*others) if result is NotImplemented else result

    return function


def _comparison(function):
    return lambda self, other: (
        self._decide(function, other) if isinstance(other, numbers.Number) else NotImplemented
    )


def _conversion(function):
    return lambda self, *args: function(self.known(), *args)


def _int(self):
    return 0 if formats_text(sys._getframe(1)) else int(self.known())


for _name in """__add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __rtruediv__ __pow__ __rpow__ __mod__
__rmod__ __floordiv__ __rfloordiv__ __neg__ __pos__ __abs__ __round__ conjugate""".split():
    setattr(UnknownNumber, _name, _arithmetic(_name))
for _function in _ORDERS:
    setattr(UnknownNumber, f"__{_function.__name__}__", _comparison(_function))
for _name, _function in {
    "__index__": operator.index,
    "__trunc__": math.trunc,
    "__floor__": math.floor,
    "__ceil__": math.ceil,
    "__complex__": complex,
    "is_integer": lambda number: float(number).is_integer(),
    "as_integer_ratio": lambda number: number.as_integer_ratio(),
    "hex": lambda number: float(number).hex(),
}.items():
    setattr(UnknownNumber, _name, _conversion(_function))
UnknownNumber.__int__ = _int


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
    """The data of torch.tensor with zeros in the place of unknown numbers, and whether there were any. Whole ones, such
    as tokens, are computed.
    """
    if isinstance(data, UnknownNumber):
        if data.is_whole and data.compute is not None:
            with contextlib.suppress(TraceError):
                return data.compute(), False
            forget_refusal()
        return 0 if data.is_whole else 0.0, True
    if not isinstance(data, (list, tuple)):
        return data, False
    parts = [without_unknown(part) for part in data]
    if all(part is old for (part, _), old in zip(parts, data)):
        return data, False
    return [part for part, _ in parts], any(is_unknown for _, is_unknown in parts)
