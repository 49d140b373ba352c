"""Changes to a program as a person would make them to save memory, made while it is traced.

Each has an equivalent in the program's own code, which `headroom solve` prints; what a trace says with the change
is what the changed program says.
"""

import contextlib
import functools
import inspect
import sys
import types
import weakref
from dataclasses import dataclass

import torch
from torch.optim import Optimizer
from torch.utils.checkpoint import checkpoint

from .errors import TraceError
from .loss_parts import LossInParts
from .recorder import is_user_file
from .standin.patch import patch

_TYPES = {"bf16": torch.bfloat16, "f16": torch.float16}

# Traces only so many passes of an accumulation: the later ones are like the last of these.
_TRACED_PASSES = 3


@dataclass(frozen=True)
class Changes:
    """The changes to make; `model` is the class of the root module that holds `checkpoints`."""

    passes: int = 1  # the forward and backward passes of a step, with batches of a part each
    checkpoints: tuple = ()  # paths of modules that run again in the backward pass
    offload: bool = False  # keeps what the backward pass needs in the host's memory
    autocast: str = ""  # "bf16" or "f16"
    fused: bool = False  # optimizers that update all weights in one kernel
    uncached: bool = False  # models of Transformers without the cache of keys and values
    model: str = ""
    loss_parts: int = 1  # in which the loss takes the results of the layer `head`
    head: str = ""  # its path

    @property
    def traced_passes(self):
        return min(self.passes, _TRACED_PASSES)

    @staticmethod
    def of(values):
        """From the values of a request; TraceError for those that are none."""
        try:
            changes = Changes(**dict(values, checkpoints=tuple(values.get("checkpoints", ()))))
        except TypeError as error:
            raise TraceError(f"not a change of a program: {error}") from error
        if changes.autocast and changes.autocast not in _TYPES:
            raise TraceError(f"'{changes.autocast}' is no type of autocast")
        if min(changes.passes, changes.loss_parts) < 1:
            raise TraceError("a step has one pass or more, and a loss one part or more")
        return changes


class ChangedProgram:
    """Makes the changes of `change` in one run of a tracer. Its patches last as long as `stack`."""

    def __init__(self, tracer, stack):
        self.tracer = tracer
        self.changes = Changes()
        self.counts_passes = False  # of a program whose steps are not called one by one
        self._optimizers = []  # references: a program may drop some
        self.name = None  # of the largest model, in a program whose steps are not called one by one
        self.models = []  # root modules with weights that ran, in the order of their first calls
        self._changed = set()  # ids of modules whose forward pass was changed
        self._pass = 0
        self._has_gradients = False  # of the pass that runs
        self._context = None  # around the forward pass of the program
        self._stack = stack
        self.loss = LossInParts(stack)
        self._install(stack)

    def change(self, changes):
        """Sets the changes from here on. A program may have made its optimizers when it was loaded."""
        self.changes = changes
        for optimizer in self.optimizers:
            self._change_optimizer(optimizer)
        if changes.passes > 1:
            for owner in (Optimizer, torch.nn.Module):
                self._keep_gradients(self._stack, owner)

    def run_step(self, step):
        """One step of the program: all its passes, of which the last one updates the weights."""
        for number in range(self.changes.traced_passes):
            self._pass = number
            self._has_gradients = False
            self._enter()
            try:
                step()
            finally:
                self._leave()

    @property
    def optimizers(self):
        """Returns those of the program, in the order in which it made them."""
        found = [reference() for reference in self._optimizers]
        return [optimizer for optimizer in found if optimizer is not None]

    @property
    def _is_last_pass(self):
        return self._pass == self.changes.traced_passes - 1

    def largest_model(self):
        return max(self.models, key=lambda model: sum(p.numel() for p in model.parameters()))

    def find_name(self):
        """Looks for the name of the largest model in the functions that run now."""
        if self.models:
            self.name = name_in_frames(self.largest_model())

    def begin(self):
        """Prepares a program whose steps are not called one by one for its first pass."""
        self.counts_passes = True
        self._enter()

    # Contexts around the forward pass.

    def _enter(self):
        changes = self.changes
        if not changes.autocast and not changes.offload:
            return
        self._context = contextlib.ExitStack()
        if changes.autocast:
            self._context.enter_context(torch.autocast("cuda", _TYPES[changes.autocast]))
        if changes.offload:
            self._context.enter_context(torch.autograd.graph.save_on_cpu(pin_memory=True))

    def _leave(self):
        context, self._context = self._context, None
        if context is not None:
            context.close()

    # Parts of PyTorch that the changes go through.

    def _install(self, stack):
        module = torch.nn.modules.module
        hook = module.register_module_forward_pre_hook(lambda m, args: self._before_forward(m))
        stack.callback(hook.remove)
        self._follow_backward(stack)
        self._follow_optimizers(stack)

    def _follow_backward(self, stack):
        original = torch.autograd._engine_run_backward

        def run_backward(*args, **kwargs):
            is_nested = self.tracer.recorder.phase == "backward"
            if not is_nested:
                self._leave()
                self.loss.require_use()
            try:
                return original(*args, **kwargs)
            finally:
                if not is_nested:
                    self._has_gradients = True
                    self._enter()

        patch(stack, torch.autograd, "_engine_run_backward", run_backward)

    def _follow_optimizers(self, stack):
        original_init = Optimizer.__init__

        def init(optimizer, *args, **kwargs):
            original_init(optimizer, *args, **kwargs)
            self._optimizers.append(weakref.ref(optimizer))
            self._change_optimizer(optimizer)

        patch(stack, Optimizer, "__init__", init)

    def _change_optimizer(self, optimizer):
        if self.changes.fused:
            _fuse(optimizer)
        if self.changes.passes > 1:
            original_step = optimizer.step

            def step(_, *args, **kwargs):
                result = original_step(*args, **kwargs) if self._is_last_pass else None
                if self.counts_passes:
                    self._pass = 0 if self._is_last_pass else self._pass + 1
                    self._has_gradients = False
                return result

            optimizer.step = types.MethodType(functools.wraps(original_step)(step), optimizer)

    def _keep_gradients(self, stack, owner):
        original = owner.zero_grad

        def zero_grad(target, *args, **kwargs):
            # Allowed before the first backward pass of a step, or after its last.
            allowed = self._is_last_pass if self._has_gradients else self._pass == 0
            return original(target, *args, **kwargs) if allowed else None

        patch(stack, owner, "zero_grad", zero_grad)

    # Models.

    def _before_forward(self, module):
        recorder = self.tracer.recorder
        if len(recorder.modules) != 1 or recorder.phase == "backward":
            return  # inside another one
        if any(module is model for model in self.models):
            return
        if next(module.parameters(), None) is None:
            return
        self.models.append(module)
        changes = self.changes
        if changes.uncached:
            for config in caching_configs(module):
                config.use_cache = False
        if changes.loss_parts > 1 and changes.head in dict(module.named_modules()):
            self.loss.count, self.loss.head = changes.loss_parts, module.get_submodule(changes.head)
        if type(module).__name__ != changes.model:
            return
        for path in changes.checkpoints:
            try:
                part = module.get_submodule(path)
            except AttributeError as error:
                raise TraceError(f"{changes.model} has no module '{path}'") from error
            if id(part) not in self._changed:
                self._changed.add(id(part))
                part.forward = functools.partial(checkpoint, part.forward, use_reentrant=False)


def _fuse(optimizer):
    if "fused" not in inspect.signature(type(optimizer).__init__).parameters:
        return
    for group in optimizer.param_groups:
        group["fused"] = True
        group["foreach"] = False


def caching_configs(model):
    """The configurations of Transformers' models that keep keys and values, as for the generation of text."""
    configs = []
    for module in model.modules():
        config = getattr(module, "config", None)
        if getattr(config, "use_cache", False) is True and not any(config is c for c in configs):
            configs.append(config)
    return configs


def name_in_frames(value):
    """Returns the name for a value in the innermost function of the user's that runs now and has one; None if none has."""
    frame = sys._getframe()
    while frame is not None:
        if is_user_file(frame.f_code.co_filename):
            held = dict(frame.f_locals)
            owner = getattr(held.get("self"), "__dict__", {})
            held.update({f"self.{name}": attribute for name, attribute in owner.items()})
            for name, found in held.items():
                if found is value:
                    return name
        frame = frame.f_back
    return None


def name_in_program(step, value, depth=2):
    """Returns the program's name for a value that its step, or a function that the step calls, uses; None if it has no
    name.
    """
    code = getattr(step, "__code__", None)
    held = {}
    cells = getattr(step, "__closure__", None) or ()
    for name, cell in zip(getattr(code, "co_freevars", ()), cells):
        with contextlib.suppress(ValueError):  # an empty cell
            held[name] = cell.cell_contents
    for name in getattr(code, "co_names", ()):
        held.setdefault(name, getattr(step, "__globals__", {}).get(name))
    owner = getattr(getattr(step, "__self__", None), "__dict__", {})
    held.update({f"self.{name}": attribute for name, attribute in owner.items()})
    for name, found in held.items():
        if found is value:
            return name
    functions = [found for found in held.values() if isinstance(found, types.FunctionType)]
    names = (name_in_program(found, value, depth - 1) for found in functions if depth > 1)
    return next((name for name in names if name), None)
