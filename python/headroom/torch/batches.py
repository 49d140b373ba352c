"""The batch of a command: finds the argument or data loader that it is, and changes it."""

import argparse
import copy
import itertools
import re
from collections.abc import MutableMapping, MutableSequence

import torch
from torch.utils.data import BatchSampler, DataLoader
from torch.utils.data._utils.fetch import _MapDatasetFetcher

from .errors import TraceError
from .standin.patch import patch

_NO_TRAINING = re.compile(r"eval|valid|(^|_)(val|test|dev|infer|predict|gen)(_|$)|accum|batches|norm")
_MOST_ITEMS = 4096  # that are taken from the data for one batch
_WORD = re.compile(r"(-{0,2}[\w.-]*batch[\w.-]*=)(\d+)$", re.IGNORECASE)


class Found:
    """Collects what a program says of its batch until its first forward pass."""

    def __init__(self):
        self.options = {}  # option of argparse -> (all its names, its number)
        self.of_loader = None  # the batch size of the loader that gave the first batch

    def install(self, stack):
        original = argparse.ArgumentParser.parse_known_args

        def parse_known_args(parser, *args, **kwargs):
            parsed, rest = original(parser, *args, **kwargs)
            for action in parser._actions:
                value = getattr(parsed, action.dest, None)
                if action.option_strings and _names_batch(action.dest) and type(value) is int:
                    name = max(action.option_strings, key=len)
                    self.options[name] = (tuple(action.option_strings), value)
            return parsed, rest

        patch(stack, argparse.ArgumentParser, "parse_known_args", parse_known_args)

    def take_loader(self, sampler):
        size = getattr(sampler, "batch_size", None)
        self.of_loader = size if type(size) is int else None


def _names_batch(name):
    name = name.lower().replace("-", "_").replace(".", "_")
    return "batch" in name and not _NO_TRAINING.search(name)


class Batch:
    """Changes the batch of a program: by the option `names`, or in its data loaders of the size `usual`."""

    def __init__(self, names=(), usual=None, in_loaders=False):
        self.names = names
        self.usual = usual
        self.in_loaders = in_loaders

    @property
    def text(self):
        was = f" ({self.usual} as typed)" if self.usual else ""
        if self.in_loaders:
            return f"the batch is batch_size of its data loader{was}"
        return f"the batch is {max(self.names, key=len).rstrip('=')}{was}"

    def arguments(self, given, batch):
        """The arguments of the program with that batch."""
        if self.in_loaders:
            return given
        given = list(given)
        for name in self.names:
            joined = name if name.endswith("=") else name + "="
            for index, word in enumerate(given):
                if word.startswith(joined):
                    return [*given[:index], f"{joined}{batch}", *given[index + 1 :]]
                if word == name and index + 1 < len(given):
                    return [*given[: index + 1], str(batch), *given[index + 2 :]]
                if len(name) == 2 and re.fullmatch(re.escape(name) + r"\d+", word):
                    return [*given[:index], f"{name}{batch}", *given[index + 1 :]]
        name = max(self.names, key=len)
        return [*given, f"{name}{batch}"] if name.endswith("=") else [*given, name, str(batch)]

    def install(self, stack, batch, steps):
        """Gives the loaders that batch, and full batches for all steps however small the data is."""
        if self.in_loaders:
            _change_sizes(stack, self.usual, batch)
        _fill_batches(stack, batch, steps)


def _change_sizes(stack, usual, batch):
    loader = DataLoader.__init__

    def init_loader(self, dataset, batch_size=1, *args, **kwargs):
        loader(self, dataset, batch if batch_size == usual else batch_size, *args, **kwargs)

    sampler = BatchSampler.__init__

    def init_sampler(self, sampler_, batch_size, drop_last):
        sampler(self, sampler_, batch if batch_size == usual else batch_size, drop_last)

    patch(stack, DataLoader, "__init__", init_loader)
    patch(stack, BatchSampler, "__init__", init_sampler)


def _fill_batches(stack, batch, steps):
    original_iter, original_length = BatchSampler.__iter__, BatchSampler.__len__

    def lacks(sampler):
        try:
            return sampler.batch_size == batch and len(sampler.sampler) < batch * steps
        except TypeError:  # a sampler without a length
            return False

    def iterate(sampler):
        if not lacks(sampler):
            yield from original_iter(sampler)
            return
        indices = list(sampler.sampler)
        for number in range(steps if indices else 0):
            yield [indices[(number * batch + i) % len(indices)] for i in range(batch)]

    def length(sampler):
        return steps if lacks(sampler) else original_length(sampler)

    patch(stack, BatchSampler, "__iter__", iterate)
    patch(stack, BatchSampler, "__len__", length)
    _fetch_items_once(stack)


def _fetch_items_once(stack):
    """Takes an item that a batch has several times from the data once, and of a larger batch the first items again and
    again: a search tries batches of 100,000 items."""
    original = _MapDatasetFetcher.fetch

    def fetch(fetcher, indices):
        places = list(dict.fromkeys(indices))[:_MOST_ITEMS] if fetcher.auto_collation else indices
        if len(places) == len(indices):
            return original(fetcher, indices)
        fetcher.collate_fn, collate = list, fetcher.collate_fn
        try:
            items = dict(zip(places, original(fetcher, places), strict=True))
        finally:
            fetcher.collate_fn = collate
        first = itertools.cycle(items.values())
        return collate([_apart(items[index] if index in items else next(first)) for index in indices])

    patch(stack, _MapDatasetFetcher, "fetch", fetch)
    _stack_once(stack)


def _stack_once(stack):
    """Stacks tensors that a list has several times once, and takes the rows from that."""
    original = torch.stack

    def stack_distinct(tensors, dim=0, *, out=None):
        distinct = {id(tensor): tensor for tensor in tensors}
        on_gpu = any(tensor.is_cuda for tensor in distinct.values())  # where each allocation counts
        if on_gpu or out is not None or dim != 0 or 2 * len(distinct) > len(tensors):
            return original(tensors, dim, out=out)
        rows = {key: row for row, key in enumerate(distinct)}
        return original(list(distinct.values()))[torch.tensor([rows[id(tensor)] for tensor in tensors])]

    patch(stack, torch, "stack", stack_distinct)


def _apart(item):
    """The item for a collator that may take entries out of it."""
    return copy.copy(item) if isinstance(item, (MutableMapping, MutableSequence)) else item


def choose_batch(arguments, found, option=None):
    """Returns the Batch of a program that gave `found`. Raises TraceError where that is ambiguous."""
    if option:
        for names, value in found.options.values():
            if option in names:
                return Batch(names, value)
        return Batch((option,))
    size = found.of_loader
    options = list(found.options.items())
    same = [(name, names) for name, (names, value) in options if value == size]
    for candidates in (same, [pair for pair in same if "train" in pair[0]]):
        if len(candidates) == 1:
            return Batch(candidates[0][1], size)
    if not same and size is not None:
        related = [(names, value) for _, (names, value) in options if value % size == 0]
        if len(options) == 1 and related:  # shared by the ranks
            return Batch(*related[0])
        return Batch(usual=size, in_loaders=True)
    if not options:
        words = [match for match in map(_WORD.match, arguments) if match and _names_batch(match[1])]
        if len(words) == 1:
            return Batch((words[0][1],), int(words[0][2]))
    elif len(options) == 1:
        return Batch(*options[0][1])
    names = " or ".join(f"--batch-option {name}" for name, _ in (same or options))
    if not names:
        raise TraceError(
            "the batch of the program is unknown: it has no data loader and no option for it; name the option, as "
            "--batch-option --batch-size (--batch-option batch_size= for words such as batch_size=16), or give one step as "
            "a function of the batch, train.py:make_step (docs/trace.md)"
        )
    raise TraceError(f"which option is the batch of the training? pass {names}")
