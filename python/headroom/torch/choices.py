"""Places that ops choose among numbers: the tokens, experts or classes with the largest ones, or some that are drawn.
With random weights all are as likely, so others may stand for those that a model would have to compute.
"""

import torch

from .cpu_ops import plain_torch
from .recipes import Evaluation

_aten = torch.ops.aten
# Op -> (the position of the dimension among its arguments, the dimension without one, the places among its results).
_CHOOSE = {
    _aten.topk.default: (2, -1, 1),
    _aten.argmax.default: (1, None, 0),
    _aten.argmin.default: (1, None, 0),
    _aten.max.dim: (1, -1, 1),
    _aten.min.dim: (1, -1, 1),
    _aten.sort.default: (1, -1, 1),
    _aten.sort.stable: (2, -1, 1),
    _aten.multinomial.default: (3, -1, 0),  # it takes none
}
_SAME = {_aten._to_copy.default, _aten.clone.default, _aten.cat.default, _aten.stack.default}


def place_of(func, args, kwargs):
    """The place of what an op chooses among its results, and the dimension, None for all at once; or None."""
    if func not in _CHOOSE:
        return None
    position, dim, result = _CHOOSE[func]
    return result, args[position] if len(args) > position else kwargs.get("dim", dim)


def _chosen(step):
    """The value of the places that a step chooses, a part like it, and the dimension; or None."""
    result, dim = place_of(step.func, step.args, step.kwargs) or (None, None)
    for index, part, made in step.results:
        if index == result and made() is not None:
            return made(), part, dim
    return None


def _among(shape, dim):
    """The number of places that an op chooses among."""
    return shape.numel() if dim is None else shape[dim] if shape else 1


def bound_of(value):
    """A number that is above all elements of a value, for places that an op chooses; None where nothing tells."""
    step = value.step
    if step is None or value.buffer is not None:
        return None
    if step.func in _SAME:
        bounds = [bound_of(inner) for inner in step.values()]
        return None if None in bounds else max(bounds)
    chosen = _chosen(step)
    return _among(step.args[0].shape, chosen[2]) if chosen and chosen[0] is value else None


def draw(evaluation, generator):
    """Draws the places that the steps of an evaluation choose. Returns false, and does nothing, where a model would
    have to compute something yet.
    """
    found = [(step, *chosen) for step in evaluation.steps if (chosen := _chosen(step)) and chosen[0].buffer is None]
    for _, value, _, _ in found:
        value.buffer = torch.UntypedStorage(0)
    rest = Evaluation(evaluation.targets)
    is_left = not found or rest.is_lost or rest.flops() > 0
    for step, value, part, dim in found:
        value.buffer = None if is_left else drawn(step.args[0].shape, part, dim, generator)
        value.step = value.step if is_left else None
    return not is_left


def drawn(source, part, dim, generator):
    """The bytes of places like a part, among numbers of the shape `source`."""
    with plain_torch():
        count = 1 if dim is None or not source else part.shape.numel() * source[dim] // max(source.numel(), 1)
        if count > 1:  # different ones
            scores = torch.rand(source, generator=generator)
            places = scores.argsort(dim).narrow(dim, 0, count)
        else:
            places = torch.randint(_among(source, dim), part.shape, generator=generator)
        return part.buffer_of(places.to(part.dtype))
