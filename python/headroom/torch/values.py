"""Values of a traced program's tensors. Data is real and the model is not: for each storage a trace keeps a recipe, the
op that gave its bytes and the values that it read, and computes them on the CPU when the program asks.

All that follows from data by cheap ops (masks, lengths, labels, boxes) is known this way, on the GPU too. A model's
values can be known, at the price of computing them (computing.py); gradients are unknown. Weights keep the values that
they had before an optimizer changed them.
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

from . import choices, finite
from .computing import MANY_STEPS, Computing
from .cpu_ops import ATTENTION, plain_torch
from .draws import Draws
from .errors import called_function, data_dependent, refusal
from .op_facts import op_of
from .recipes import Evaluation, Kept, NotComputable, Part, Step, Value, copy_into, replace
from .results import tensors_in
from .standin import lbfgs
from .unknown import holds_unknown

_SMALL = 4096  # elements of an op that is computed at once
_MOST_BYTES = 256 << 20  # of data that is kept
_MOST_STEPS = 200_000  # that are kept
_MOST_DRAWN = 1 << 24  # elements from a generator that the program made
_NO_DATA = (None, None)
_UNKNOWN = "unknown"  # the version of real data into which an op wrote unknown values

_aten = torch.ops.aten


def _filled(shape, value, dtype):
    return torch.tensor(value, dtype=dtype).expand(shape)


def mark_mapped(storage):
    """Says that a storage lies in a file, so that its values need no copy and are read when somebody asks for them."""
    storage._headroom_mapped = True


def is_mapped(storage):
    return getattr(storage, "_headroom_mapped", False)


class KnownValues:
    def __init__(self, tracer, compute=None):
        self._tracer = tracer
        self.computing = Computing(compute)
        self.draws = Draws()
        self._data = Kept(_MOST_BYTES, are_data=True)

    def assumed(self):
        """Sentences about the values that sizes follow from; none where all are those of the program's data."""
        drawn = [
            "which tokens, experts or classes the model chooses is drawn, as computing them takes long (--compute all)"
        ]
        if not self.computing.has_decided:
            return []
        return drawn * self.computing.draws_choices + [
            "some sizes follow from what the model computes, here with the weights that it starts with; "
            "trained ones can give others"
        ]

    # Tensors.

    def recipe(self, tensor):
        """The Value of a tensor's storage, or None."""
        storage = tensor.untyped_storage()
        if isinstance(tensor, FakeTensor):
            value = getattr(storage, "_headroom_value", None)
            return None if value is None or value.is_lost() else value
        return self._value_of_data(tensor, storage)

    def are_data(self, tensors):
        """Returns true if there are tensors, and all of them are real ones of known values."""
        return bool(tensors) and not any(
            isinstance(tensor, FakeTensor)
            or getattr(tensor.untyped_storage(), "_headroom_data", _NO_DATA)[1] == _UNKNOWN
            for tensor in tensors
        )

    def _value_of_data(self, tensor, storage):
        """The Value of real data, which the program may change later."""
        version = None if tensor.is_inference() else tensor._version
        value, known_version = getattr(storage, "_headroom_data", _NO_DATA)
        is_old = value is None or value.is_lost() or version != known_version
        if known_version != _UNKNOWN and is_old:
            if is_mapped(storage):
                if value is not None:
                    value.buffer = None  # the program has changed what it shows
                value = Value(storage.nbytes(), storage)
            else:
                value = self._keep(storage.nbytes(), storage.clone)
            storage._headroom_data = (value, version)
        return value

    def _keep(self, size, make):
        """A Value of data. The oldest data are dropped where too much is kept; None for too much at once."""
        if size > _MOST_BYTES:
            return None
        with plain_torch():
            value = Value(size)
            self._data.add(value, make())
        return value

    def as_fake(self, tensor):
        """A fake tensor on the CPU with the values of real data."""
        value = self._value_of_data(tensor, tensor.untyped_storage())
        fake = self._tracer.fake_mode.from_tensor(tensor.detach())
        if value is not None:
            self._assign(fake, value)
        return fake

    def of(self, tensor):
        """Returns the real tensor of a fake one, or None if its values are unknown or not computed yet."""
        if not isinstance(tensor, FakeTensor):
            return tensor
        value = self.recipe(tensor)
        return None if value is None or value.buffer is None else self._real(value, tensor)

    def _real(self, value, tensor):
        with plain_torch():
            return Part(value, tensor).over(value.buffer)

    def element(self, tensor, index):
        """A view of one element of data on the CPU; None where that is not known."""
        value = self.recipe(tensor)
        if value is None or tensor.requires_grad:
            return None
        if value.buffer is None and (value.step.values() or not self.computing.cheap([value])):
            return None
        with plain_torch():
            return Part(value, tensor).over(value.buffer)[index]

    def set_elements(self, tensor, index, data):
        """Writes a number or real data into data on the CPU that no op has read yet. Returns false otherwise."""
        value = self.recipe(tensor)
        if value is None or value.uses or value.is_drawn or tensor.requires_grad:
            return False
        if value.buffer is None and not self.computing.cheap([value]) or is_mapped(value.buffer):
            return False
        with plain_torch():
            Part(value, tensor).over(value.buffer)[index] = data
        value.step = None  # which would give what was there before
        return True

    def of_data(self, tensor):
        """of(), and cheap() of what follows from no random numbers, as a model's weights do."""
        value = self.recipe(tensor)
        return self.of(tensor) if value is None or value.is_drawn else self.cheap(tensor)

    def cheap(self, tensor):
        """Returns the real tensor of a fake one if it costs next to nothing to compute, or None."""
        if not isinstance(tensor, FakeTensor):
            return tensor
        value = self.recipe(tensor)
        if value is None or not self.computing.cheap([value]):
            return None
        return self._real(value, tensor)

    def ask(self, tensor, what, most_seconds=None):
        """Returns the real tensor of a fake one, which is computed if need be, unless all that is computed then takes
        more seconds. Raises a refusal of `what`.
        """
        if not isinstance(tensor, FakeTensor):
            return tensor
        value = self.recipe(tensor)
        reason = "a trace does not know it" if value is None else self.computing.compute([value], most_seconds, True)
        if reason:
            raise data_dependent(what, reason=reason)
        return self._real(value, tensor)

    def later(self, tensor, what):
        """A function that asks for the value that a tensor has now; None if that is unknown for good."""
        value = self.recipe(tensor)
        if value is None:
            return None
        part = Part(value, tensor)

        def compute(most_seconds=None):
            reason = self.computing.compute([value], most_seconds)
            if reason:
                raise data_dependent(what, reason=reason)
            with plain_torch():
                return part.over(value.buffer)

        return compute

    # Ops.

    def run(self, func, args, kwargs, inputs):
        """Runs an op on fake tensors, and takes down how its results follow from its arguments."""
        op = op_of(func)
        sources = self._sources(op, func, args, kwargs, inputs)
        try:
            result = self._tracer.results.run(func, args, kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException):
            if func in (_aten.index.Tensor, _aten.masked_select.default):
                return self._run_masked(func, args, inputs)
            if func is _aten.bincount.default and sources is not None:
                result = self._bins(args, kwargs, sources)
                if result is not None:
                    self._follow(op, func, args, kwargs, inputs, sources, result)
                    return result
            return self._run_now(func, args, kwargs, inputs)
        except UnsupportedOperatorException as error:
            if sources is None:
                raise refusal(
                    f"{_public_name(func)} cannot be traced: PyTorch does not know the shapes of its "
                    "results without running it; register them with torch.library.register_fake"
                ) from error
            return self._run_now(func, args, kwargs, inputs)
        except Exception as error:
            if holds_unknown(args) or holds_unknown(kwargs):  # for a size, as of torch.arange
                raise data_dependent("item()") from error
            raise
        self._follow(op, func, args, kwargs, inputs, sources, result)
        if Step.count > MANY_STEPS and not torch.is_grad_enabled() and self.computing.mode == "auto":
            self._choose(func, args, kwargs, result)
        return result

    def _choose(self, func, args, kwargs, result):
        """Draws what an op chooses, as the tokens of a long text, before there are too many steps to know it."""
        result_at, dim = choices.place_of(func, args, kwargs) or (None, None)
        if result_at is None:
            return
        out = tensors_in(result)[result_at]
        value = self.recipe(out)
        if value is not None and self.computing.cheap([value]):
            return
        if value is not None and not self.computing.draws_choices:
            choices.draw(Evaluation([value]), self.computing.begin_choices())  # those before it, too
        part = Part(None, out)
        generator = self.computing.begin_choices()
        self._assign(out, Value(part.bytes, choices.drawn(args[0].shape, part, dim, generator)))

    def follow(self, func, args, kwargs, inputs, result):
        """Takes down the results of an op that ran on fake tensors, and what it wrote."""
        op = op_of(func)
        sources = self._sources(op, func, args, kwargs, inputs)
        self._follow(op, func, args, kwargs, inputs, sources, result)

    def give(self, function, args, outputs):
        """Takes down that a function of real tensors gives outputs, where its arguments are known; else they are not."""
        inputs = tensors_in(args)
        values = [self.recipe(tensor) for tensor in inputs]
        if None in values:
            for out in outputs:
                self.forget(out)
            return
        parts = (Part(value, tensor) for value, tensor in zip(values, inputs))
        self._give(Step(function, replace(args, parts), {}), list(enumerate(outputs)), [], [])

    def _follow(self, op, func, args, kwargs, inputs, sources, result):
        is_step = self._tracer.recorder.phase == "optimizer"
        written = op.written(args, kwargs) if sources is None or is_step else ()
        if sources is None or is_step and written and all(map(_is_weight, written)):
            for tensor in written:
                if not _is_weight(tensor):
                    self.forget(tensor)
        else:
            self._record(op, func, args, kwargs, inputs, sources, result)
        finite.follow(func, inputs, result)

    def _sources(self, op, func, args, kwargs, inputs):
        """The Values of the inputs, or None if the results of the op are unknown."""
        if op.filled is not None:
            return [None] * len(inputs) if not _has_nan(args, kwargs) else None
        if not inputs and not (op.is_factory or op.is_random):
            return None
        written = op.written(args, kwargs) if op.fills else ()
        sources = []
        for tensor in inputs:
            if written and tensor is written[0] and _covers_storage(tensor):
                sources.append(None)
                continue
            value = self.recipe(tensor)
            if value is None:
                return None
            sources.append(value)
        if self._is_in_backward():
            if not any(tensor.is_floating_point() for tensor in inputs) and self._are_light(inputs, sources):
                return sources  # what counts or marks, as DDP does which weights a step uses
            if not _are_small(inputs, sources):
                return None
        if Step.count > _MOST_STEPS and not self._are_light(inputs, sources):
            return None
        return None if _has_nan(args, kwargs) else sources

    def _are_light(self, inputs, sources):
        """Returns true for a few whole numbers that are known, such as tokens."""
        is_light = all(t.numel() <= _SMALL and not t.is_floating_point() for t in inputs)
        return is_light and self.computing.cheap([value for value in sources if value is not None])

    def _is_in_backward(self):
        """True while gradients are computed, of which nothing is known; but not while a checkpoint runs again."""
        return self._tracer.recorder.phase == "backward" and not torch.is_grad_enabled()

    def _record(self, op, func, args, kwargs, inputs, sources, result):
        outputs = tensors_in(result)
        if op.filled is not None:
            if outputs:
                where, value = op.filled
                if where == "argument":
                    value = args[value] if value < len(args) else kwargs["fill_value"]
                if not isinstance(value, torch.Tensor):
                    out = outputs[0]
                    step = Step(_filled, [tuple(out.shape), value, out.dtype], {})
                    self._give(step, [(0, out)], [], [])
            return
        storages = {tensor.untyped_storage()._cdata for tensor in inputs}
        new = [
            (index, out)
            for index, out in enumerate(outputs)
            if isinstance(out, FakeTensor) and out.untyped_storage()._cdata not in storages
        ]
        if func in ATTENTION:
            new = new[:1]
        written = op.written(args, kwargs)
        if not new and not written:
            return  # a view
        parts = [Part(value, tensor) for value, tensor in zip(sources, inputs)]
        draw = None
        has_generator = kwargs.get("generator") is not None
        if op.is_random and not has_generator:
            draw = self.draws.next()
        is_small = draw is None and _are_small(inputs + outputs, sources)
        if func is _aten.copy_.default and sources[0] is not None and not is_small:
            if isinstance(written[0], FakeTensor):
                self._give(copy_into(sources[0], *parts), [], [0], written)
            return
        stream = iter(parts)
        options = {k: v for k, v in kwargs.items() if k not in ("device", "pin_memory", "layout")}
        step = Step(func, replace(args, stream), replace(options, stream), draw)
        positions = [
            next(i for i, tensor in enumerate(inputs) if tensor is wanted) for wanted in written
        ]
        if has_generator and not self._is_drawn_now(outputs, sources):
            written = [*written, *[out for _, out in new]]
            for tensor in written:
                self.forget(tensor)
            return
        self._give(step, new, positions, written)
        if has_generator or is_small:
            self._run_step(step)

    def _is_drawn_now(self, outputs, sources):
        """Returns true if the program's own generator draws now, from what is known or cheap to compute."""
        if sum(out.numel() for out in outputs) > _MOST_DRAWN:
            return False
        return all(value is None or value.buffer is not None or self.computing.cheap([value]) for value in sources)

    def _give(self, step, new, positions, written):
        """Makes the Values of a step's results."""
        for index, out in new:
            part = Part(None, out)
            value = step.gives(part)
            step.results.append((index, part, weakref.ref(value)))
            self._assign(out, value)
        parts = step.parts()
        for position, tensor in zip(positions, written):
            if not isinstance(tensor, FakeTensor):
                continue
            value = step.gives(parts[position])
            step.writes.append((position, weakref.ref(value)))
            self._assign(tensor, value)

    def _assign(self, tensor, value):
        storage = tensor.untyped_storage()
        storage._headroom_value = value
        value.owner = weakref.ref(storage)

    def _run_step(self, step):
        try:
            self.computing.run_step(step)
        except NotComputable:
            pass

    def _bins(self, args, kwargs, sources):
        """The result of bincount() where its least length is enough, whatever the values are."""
        weights = kwargs.get("weights", args[1] if len(args) > 1 else None)
        length = kwargs.get("minlength", args[2] if len(args) > 2 else 0)
        bound = choices.bound_of(sources[0])
        if weights is not None or bound is None or bound > length:
            return None
        with self._tracer.fake_mode:
            return torch.empty(length, dtype=torch.int64)

    def _run_masked(self, func, args, inputs):
        """A choice of elements by masks, whose values alone say how many there are."""
        tensor, masks = args
        if func is _aten.masked_select.default:
            tensor, mask = torch.broadcast_tensors(tensor, masks)
            masks = [mask]
        indices = []
        for mask in masks:
            if mask is None or mask.dtype not in (torch.bool, torch.uint8):
                indices.append(mask)
                continue
            real = self.ask(mask, _public_name(func))
            with plain_torch():
                places = real.nonzero().unbind(1) if real.dim() else [real.nonzero()[:, 0]]
            indices += [self._fake(place) for place in places]
        args = (tensor, indices)
        return self.run(_aten.index.Tensor, args, {}, tensors_in(args))

    def count_of(self, mask):
        """The elements that a mask chooses, or all that it has."""
        real = self.cheap(mask)
        if real is None:
            return mask.numel()
        with plain_torch():
            return int(real.count_nonzero())

    def _run_now(self, func, args, kwargs, inputs):
        """Runs an op whose results have shapes that follow from values."""
        if func is _aten._local_scalar_dense.default and self.recipe(inputs[0]) is None and lbfgs.asks_for_number():
            return 1.0
        name = _public_name(func)
        reals = iter([self.ask(tensor, name) for tensor in inputs])
        with plain_torch():
            real = func(*replace(args, reals), **replace(kwargs, reals))
        return tree_map(self._fake, real)

    def _fake(self, real):
        if not isinstance(real, torch.Tensor):
            return real
        if real.untyped_storage().nbytes() != real.numel() * real.element_size():
            with plain_torch():
                real = real.clone(memory_format=torch.contiguous_format)
        with self._tracer.fake_mode:
            fake = torch.empty_strided(real.size(), real.stride(), dtype=real.dtype)
        storage = real.untyped_storage()
        self._assign(fake, Value(storage.nbytes(), storage))
        return fake

    # Values that become unknown.

    def mark_weight(self, tensor):
        """Leaves the values of a tensor as they are, whatever an optimizer writes into it."""
        tensor.untyped_storage()._headroom_is_weight = True

    def forget(self, tensor):
        """The values of a tensor, and of its views, are known no more."""
        if isinstance(tensor, FakeTensor):
            tensor.untyped_storage()._headroom_value = None
        else:
            tensor.untyped_storage()._headroom_data = (None, _UNKNOWN)


def _is_weight(tensor):
    """Returns true for what keeps its values, whatever an optimizer writes into it."""
    is_weight = tensor.requires_grad and tensor.is_leaf
    return is_weight or getattr(tensor.untyped_storage(), "_headroom_is_weight", False)


def _covers_storage(tensor):
    size = tensor.numel() * tensor.element_size()
    return size == tensor.untyped_storage().nbytes() and tensor.is_contiguous()


def _are_small(tensors, sources):
    return all(value is None or value.buffer is not None for value in sources) and all(
        tensor.numel() <= _SMALL for tensor in tensors
    )


def _has_nan(args, kwargs):
    return holds_unknown(args) or holds_unknown(kwargs)


def _public_name(func):
    """Returns a program's name for an op; an op that reads a number runs within another."""
    if func is _aten._local_scalar_dense.default:
        return called_function() or "item()"
    return func.overloadpacket.__name__.lstrip("_")
