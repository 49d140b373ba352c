"""Passes of a model that begin as the one before did: the many of an evaluation and of accumulated gradients. Their
memory is that of the one before, so they are left out, with results of the same sizes.
"""

import weakref

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from .results import tensors_in
from .standin.patch import patch

_OF_MODULES = ("_parameters", "_buffers", "_modules")
_PLAIN = (type(None), bool, int, float, str, torch.dtype, torch.device)
_LITTLE = 64 << 10  # bytes by which more or less may be live than before the pass that was traced


class _Passed(torch.autograd.Function):
    """Gives results that have a graph, of which nothing is kept."""

    @staticmethod
    def forward(context, anchor, result):
        return result.detach()

    @staticmethod
    def backward(context, gradient):
        return None, None


def _facts(tensor):
    return (tensor.size(), tensor.stride(), tensor.dtype, tensor.device, tensor.requires_grad)


def _kept_by(module):
    """The tensors in attributes of a module and of those in it, without weights and buffers, and their places."""
    return [
        ((part, name, place), tensor)
        for part in module.modules()
        for name, value in vars(part).items()
        if name not in _OF_MODULES
        for place, tensor in enumerate(tensors_in(value))
    ]


def _new(module, before):
    """The attributes of a module that are other tensors than before."""
    new = [key[:2] for key, tensor in _kept_by(module) if key not in before or before[key]() is not tensor]
    return [(_Attribute(part, name), vars(part)[name]) for part, name in new]


class _Attribute:
    def __init__(self, part, name):
        self.part, self.name = part, name


class Repeats:
    def __init__(self, tracer):
        self.tracer = tracer
        self._last = None  # how the last pass of a root module that was traced began
        self._live_bytes = 0  # then
        self._results = None  # a description of what it gave
        self._anchor = None  # a leaf for results with gradients
        self.left_out = 0
        self._are_traced = False  # whatever they are like

    def forget(self):
        """Takes no pass after this for one as before: a step is done."""
        self._last = None

    def install(self, stack):
        original = torch.nn.Module.__call__

        def call(module, *args, **kwargs):
            if self.tracer.recorder.modules or self.tracer.recorder.phase == "backward":
                return original(module, *args, **kwargs)
            start = self._start(module, args, kwargs)
            live_bytes = self.tracer.recorder.live_bytes
            is_alike = start is not None and start == self._last and abs(live_bytes - self._live_bytes) < _LITTLE
            if is_alike and self._results is not None:
                self.left_out += 1
                return self._alike()
            before = {key: weakref.ref(tensor) for key, tensor in _kept_by(module)} if start else {}
            result = original(module, *args, **kwargs)
            self._last, self._live_bytes = start, live_bytes
            self._results = start and self._describe((result, _new(module, before)))
            return result

        differentiate = torch.autograd.grad

        def grad(*args, **kwargs):
            self._are_traced = True  # what is left out depends on no weight that it may ask for
            return differentiate(*args, **kwargs)

        patch(stack, torch.autograd, "grad", grad)
        patch(stack, torch.nn.Module, "__call__", call)

    def _start(self, module, args, kwargs):
        """All that the memory of a pass depends on; None where that is not known."""
        if self.tracer.costs is not None or self._are_traced:  # each pass takes its time
            return None
        if any(weight.grad_fn is not None for weight in module.parameters()):  # of another pass
            return None
        leaves, structure = tree_flatten((args, kwargs))
        facts = []
        for leaf in leaves:
            if isinstance(leaf, torch.Tensor):
                facts.append(_facts(leaf))
            elif isinstance(leaf, _PLAIN):
                facts.append(leaf)
            else:
                return None
        state = (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), module.training)
        return id(module), state, structure, facts

    def _describe(self, results):
        """None for results with other things than tensors on the GPU and numbers."""
        leaves, structure = tree_flatten(results)
        described = []
        for leaf in leaves:
            if type(leaf) is _Attribute and isinstance(vars(leaf.part)[leaf.name], torch.Tensor):
                described.append((False, leaf))
            elif type(leaf) is FakeTensor and leaf._base is None and leaf.device.type == "cuda":
                described.append((True, _facts(leaf)))
            elif isinstance(leaf, _PLAIN):
                described.append((False, leaf))
            else:
                return None
        return described, structure

    def _alike(self):
        described, structure = self._results
        leaves = [self._make(*facts) if is_tensor else facts for is_tensor, facts in described]
        result, attributes = tree_unflatten(leaves, structure)
        for attribute, tensor in attributes:
            setattr(attribute.part, attribute.name, tensor)
        return result

    def _make(self, size, stride, dtype, device, requires_grad):
        made = torch.empty_strided(size, stride, dtype=dtype, device=device)
        if not requires_grad:
            return made
        if self._anchor is None:
            self._anchor = torch.empty((), requires_grad=True)
        return _Passed.apply(self._anchor, made)
