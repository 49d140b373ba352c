"""Sequences of different lengths in one tensor (torch.nn.utils.rnn), as PackedSequence.cpp packs and unpacks them: it
reads the lengths in C++, where fake tensors have no values.
"""

import itertools

import torch

from .cpu_ops import plain_torch


def _runs(lengths):
    """(start, end, rows) of steps with the same number of rows, for lengths in falling order."""
    runs, start = [], 0
    for rows, length in zip(range(len(lengths), 0, -1), reversed(lengths)):
        if length > start:
            runs.append((start, length, rows))
            start = length
    return runs


def _numbers(tracer, tensor, what):
    value = tracer.values.ask(tensor, what)
    with plain_torch():
        return value.tolist()


def _make_pack(tracer):
    class Pack(torch.autograd.Function):
        @staticmethod
        def forward(ctx, tensor, lengths, batch_first):
            counts = _numbers(tracer, lengths, "pack_padded_sequence()")
            if any(a < b for a, b in itertools.pairwise(counts)):
                raise RuntimeError(
                    "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True"
                )
            if not counts or counts[-1] <= 0:
                raise RuntimeError(
                    "Length of all samples has to be greater than 0, but found an element in "
                    "'lengths' that is <= 0"
                )
            steps = tensor.transpose(0, 1) if batch_first else tensor
            rows = [n for start, end, n in _runs(counts) for _ in range(start, end)]
            parts = [
                steps[start:end, :n].contiguous().view((end - start) * n, *tensor.shape[2:])
                for start, end, n in _runs(counts)
            ]
            ctx.rows, ctx.shape, ctx.batch_first = rows, steps.shape, batch_first
            sizes = torch.tensor(rows)
            ctx.mark_non_differentiable(sizes)
            return torch.cat(parts), sizes

        @staticmethod
        def backward(ctx, gradient, _):
            result = gradient.new_zeros(ctx.shape)
            for step, (end, n) in enumerate(zip(itertools.accumulate(ctx.rows), ctx.rows)):
                result[step, :n].copy_(gradient[end - n : end])
            return result.transpose(0, 1) if ctx.batch_first else result, None, None

    def pack(input, lengths, batch_first):
        return Pack.apply(input, lengths, batch_first)

    return pack


def _make_unpack(tracer):
    def unpack(data, batch_sizes, batch_first, padding_value, total_length):
        rows = _numbers(tracer, batch_sizes, "pad_packed_sequence()")
        longest = total_length if total_length > 0 else len(rows)
        if longest < len(rows):
            raise RuntimeError(
                f"Expected total_length to be at least the length of the longest sequence in input, but got "
                f"total_length={total_length} and max sequence length being {len(rows)}"
            )
        output = data.new_full((longest, rows[0], *data.shape[1:]), padding_value)
        step = offset = 0
        for n, group in itertools.groupby(rows):
            count = len(list(group))
            part = data[offset : offset + count * n].view(count, n, *data.shape[1:])
            output[step : step + count, :n].copy_(part)
            step, offset = step + count, offset + count * n
        lengths = [sum(n > row for n in rows) for row in range(rows[0])]
        return output.transpose(0, 1) if batch_first else output, torch.tensor(lengths)

    return unpack


def install(tracer, library):
    for name, function in (
        ("_pack_padded_sequence", _make_pack(tracer)),
        ("_pad_packed_sequence", _make_unpack(tracer)),
    ):
        for key in ("AutogradCPU", "CPU"):
            library.impl(name, function, key)
        tracer.composites[getattr(torch.ops.aten, name).default] = function
