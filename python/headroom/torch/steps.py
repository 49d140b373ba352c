"""The steps of a program that trains by itself. A step ends at optimizer.step(), of all its optimizers where it has
several. After the last step the data of the training ends, so that an evaluation after it runs too.

Marks steps and evaluations in the recorder; knows what PyTorch trains with, and no command.
"""

import collections.abc
import contextlib
import os
import sys
import time
import weakref

import torch
from torch.optim import optimizer as optimizers
from torch.utils.data import dataloader

from .branches import awaits_end
from .growth import ENOUGH, Growth
from .standin.patch import patch

_MOST_TURNS = 8  # steps of one optimizer in which others take none: they are not used
_MOST_PASSES = 64  # forward passes after the last step
_MOST_AHEAD = 200  # batches of which the last step takes the largest
_MOST_ELEMENTS_AHEAD = 1 << 26
_MOST_SECONDS_AHEAD = 2


class Finished(BaseException):
    """Ends a program after its last step. No handler of a program is for it."""


def elements_of(batch, depth=4):
    """The elements of all tensors in a batch: a tensor, a structure of tensors, or an object that has some."""
    if isinstance(batch, torch.Tensor):
        return batch.numel()
    if isinstance(batch, collections.abc.Mapping):
        batch = list(batch.values())
    elif not isinstance(batch, (list, tuple)):
        batch = list(getattr(batch, "__dict__", {}).values())
    return sum(elements_of(part, depth - 1) for part in batch) if depth else 0


class _Loop:
    """The use of one iterator of a data loader."""

    def __init__(self, steps):
        self.batches = 0
        self.backwards = steps.backwards
        self.evaluations = steps.evaluations
        self.at_steps = []  # the batches that it had given at the end of each step
        self.sizes = set()  # the elements of its batches
        self.ahead = []  # batches that it gives before those of its iterator
        self.has_looked = False
        self.is_training = False
        self.growth = Growth(steps.recorder)
        self.most = ENOUGH  # batches of an evaluation


class Steps:
    """Follows a program until `wanted` steps are done and what it evaluates after them; then calls `end`."""

    def __init__(self, tracer, changed, wanted, end, on_step=None):
        self.tracer = tracer
        self.recorder = tracer.recorder
        self.changed = changed
        self.wanted = wanted
        self.done = 0
        self.is_finished = False
        self.backwards = self.evaluations = 0
        self.on_first_pass = None  # called with the sampler of the batches of the first forward pass of a training
        self._end = end
        self._on_step = on_step
        self._process = os.getpid()
        self._depth = 0  # of optimizers in optimizers
        self._ends_in_backward = False
        self._turns = {}  # id of an optimizer -> its steps in this step
        self._idle = set()  # ids of optimizers that take no steps
        self._passes_left = _MOST_PASSES
        self._loops = weakref.WeakKeyDictionary()  # iterator of a data loader -> _Loop
        self._current = None  # the iterator that gave the last batch
        self._modes = set()  # if modules were training in passes that a backward pass followed
        self._mode = False  # if the module of the last pass with a graph was
        self._with_graphs = False  # the last evaluation was without torch.no_grad()
        self._doubtful = None  # (iterator, events before) of passes that may be an evaluation, or the next epoch

    def install(self, stack):
        handles = [
            optimizers.register_optimizer_step_pre_hook(self._before_step),
            optimizers.register_optimizer_step_post_hook(self._after_step),
            torch.nn.modules.module.register_module_forward_pre_hook(
                lambda module, args: self._before_forward(module)
            ),
        ]
        for handle in handles:
            stack.callback(handle.remove)
        self._follow_backward(stack)
        self._follow_loaders(stack)
        self._follow_values(stack)

    # Steps of optimizers.

    def _before_step(self, optimizer, args, kwargs):
        if self.is_finished and self._depth == 0:
            self.end()
        if self.recorder.step == 0 and self.backwards == 0:  # it calls the training, as Lightning's do
            self._begin()
            self.recorder.enter("optimizer")
        self._depth += 1

    def _after_step(self, optimizer, args, kwargs):
        self._depth -= 1
        self._turns[id(optimizer)] = self._turns.get(id(optimizer), 0) + 1
        self._idle.discard(id(optimizer))
        if self._depth > 0:
            return
        if self.tracer.phase_before_step == "backward":  # optimizers that step as soon as they have gradients
            self._ends_in_backward = True
        else:
            self._end_turn()

    def _end_turn(self):
        """The step is done once all optimizers took theirs."""
        waiting = {id(other) for other in self.changed.optimizers} - self._turns.keys() - self._idle
        if waiting and max(self._turns.values()) < _MOST_TURNS:
            return
        self._idle |= waiting
        self._turns = {}
        self.done += 1
        if self._on_step:
            self._on_step(self.done)
        loop = self._loops.get(self._current) if self._current is not None else None
        if loop:
            loop.is_training = True
            loop.at_steps.append(loop.batches)
        if self.done < self.wanted:
            self.recorder.enter("forward", self.done + 1)
            if self.tracer.costs:
                self.tracer.costs.begin_step()
            return
        self.recorder.enter("other")
        self.is_finished = True
        if loop is None:
            self.end()

    def end(self):
        """Ends the program, or, where it has no step, calls all that it did after its setup one."""
        if os.getpid() != self._process:
            return
        if self.done == 0:
            events = self.recorder.events
            for index, event in enumerate(events):
                if event[0] == "m" and event[1] == 0 and event[2] != "setup":
                    events[index] = ("m", 1, event[2])
            if any(event[0] == "m" and event[1] == 1 for event in events):
                self.recorder.step = 1  # of what comes after
        self._end()

    # Forward and backward passes.

    def _before_forward(self, module):
        recorder = self.recorder
        if len(recorder.modules) != 1 or recorder.phase == "backward":
            return  # inside another one
        if self._depth:
            recorder.enter("forward")
            return
        if not self._is_trained(module):
            return
        if torch.is_grad_enabled():
            self._mode = module.training
            if self.is_finished:
                if self._doubtful is None or self._doubtful[0] is not self._current:
                    self._doubtful = (self._current, len(recorder.events))
                self._evaluate()
            elif not self.changed.optimizers:  # it is only tried out, or nothing is trained
                if recorder.phase == "setup":
                    recorder.enter("forward")
            elif recorder.step == 0:
                self._begin()
            elif self.on_first_pass:
                self._find_batches(self._current)
            elif self._modes == {True} and not module.training:
                self._evaluate()
            elif recorder.phase == "evaluation":
                recorder.enter("forward", self.done + 1)
        elif not module.training:
            self._evaluate()

    def _evaluate(self):
        self.evaluations += 1
        self._with_graphs = torch.is_grad_enabled()
        if self.recorder.phase != "evaluation":
            self.recorder.enter("evaluation")
        if self.is_finished:
            self._passes_left -= 1
            if self._passes_left == 0:
                self.end()

    def _end_in_training(self):
        """Ends the program where it trains on after its last step: the passes for that are no evaluation."""
        if self._doubtful and self._doubtful[0] is self._current:
            del self.recorder.events[self._doubtful[1] :]
        self.end()

    def _begin(self):
        """The first pass of the training: what came before it was the setup."""
        self._find_batches(self._current)
        self.recorder.enter("forward", 1)
        if self.tracer.costs:
            self.tracer.costs.begin_step()

    def _find_batches(self, is_training):
        """A pass without a batch, before the first backward pass, may only try the model out."""
        if self.on_first_pass and is_training is not None:
            self.on_first_pass(getattr(self._current, "_index_sampler", None))

    def _is_trained(self, module):
        """Returns true if an optimizer has a weight of the module, or, where there is no optimizer, if it has weights."""
        trained = {
            id(parameter)
            for optimizer in self.changed.optimizers
            for group in optimizer.param_groups
            for parameter in group["params"]
        }
        return any(not trained or id(parameter) in trained for parameter in module.parameters())

    def _follow_backward(self, stack):
        original = torch.autograd._engine_run_backward

        def run_backward(*args, **kwargs):
            if self.recorder.phase == "backward":
                return original(*args, **kwargs)
            if self.is_finished:
                self._end_in_training()
            if self.recorder.step == 0:
                self._begin()
            self._find_batches(True)
            self.backwards += 1
            self._modes.add(self._mode)
            result = original(*args, **kwargs)
            if self._depth:
                self.recorder.enter("optimizer")
            if not self.changed.optimizers:  # the program updates its weights by hand
                self._turns = {None: 1}
                self._ends_in_backward = True
            if self._ends_in_backward:
                self._ends_in_backward = False
                self._end_turn()
            return result

        patch(stack, torch.autograd, "_engine_run_backward", run_backward)

    def _follow_values(self, stack):
        """After the last step no metrics are computed: only modules may ask for what a model computes."""
        computing = self.tracer.values.computing
        original = computing.compute

        def compute(*args, **kwargs):
            mode = computing.mode
            if self.is_finished and not self.recorder.modules:
                computing.mode = "never"
            try:
                return original(*args, **kwargs)
            finally:
                computing.mode = mode

        patch(stack, computing, "compute", compute)

    # Data loaders.

    def _follow_loaders(self, stack):
        iterator = dataloader._BaseDataLoaderIter
        original = iterator.__next__

        def next_batch(batches):
            loop = self._loops.get(batches)
            if loop is None:
                loop = self._loops[batches] = _Loop(self)
            if self._has_enough(loop) and awaits_end(sys._getframe(1)):
                if loop.is_training or not self._extend(loop, batches):
                    raise StopIteration
            loop.growth.begin_batch()
            batch = loop.ahead.pop(0) if loop.ahead else original(batches)
            if loop.is_training and self.done == self.wanted - 1 and not loop.has_looked:
                batch = self._largest(loop, batch, lambda: original(batches))
            loop.batches += 1
            loop.sizes.add(elements_of(batch))
            self._current = batches
            return batch

        patch(stack, iterator, "__next__", next_batch)

    def _extend(self, loop, batches):
        """Records what the batches of an evaluation keep that are left out. Returns true if one more is to be traced."""
        try:
            left_out = len(batches) - ENOUGH - 1
        except TypeError:  # data without a length
            left_out = 0
        if loop.most > ENOUGH or left_out < 0 or not loop.growth.extend(left_out, self._with_graphs):
            return False
        loop.most += 1
        if loop.growth.sentence:
            self.tracer.assumed[loop.growth.sentence] = True
        return True

    def _largest(self, loop, batch, next_batch):
        """The batch, or, where those of the data differ in size, the largest of some that follow, for the last step."""
        loop.has_looked = True
        if len(loop.sizes | {elements_of(batch)}) < 2:
            return batch
        found, end = [batch], time.monotonic() + _MOST_SECONDS_AHEAD
        with contextlib.suppress(Exception):  # StopIteration at the end of the data, or what a data set raises
            while len(found) < _MOST_AHEAD and time.monotonic() < end:
                if sum(map(elements_of, found)) > _MOST_ELEMENTS_AHEAD:
                    break
                found.append(next_batch())
        largest = max(found, key=elements_of)
        if elements_of(largest) < 1.01 * max(loop.sizes):
            largest = batch
        else:
            said = f"the last traced step has the largest of {len(found)}"
            self.tracer.assumed[f"batches differ in size: {said}; if the data has larger ones, they take more"] = True
        loop.ahead = [other for other in found if other is not largest]
        return largest

    def _has_enough(self, loop):
        """Returns true for a loop of a training that has the batches of all steps, and one of an evaluation with some."""
        if loop.is_training:
            return self.is_finished or loop.batches >= self._batches_of(loop)
        if loop.batches < loop.most or loop.backwards != self.backwards:
            return False
        return self.is_finished or loop.evaluations != self.evaluations

    def _batches_of(self, loop):
        """The batches of all steps, for loops that ask for some before they are used."""
        if len(loop.at_steps) < 2:
            return float("inf")
        of_one = loop.at_steps[-1] - loop.at_steps[-2]
        return of_one * (len(loop.at_steps) + self.wanted - self.done)
