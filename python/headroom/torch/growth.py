"""Counts what an evaluation keeps on the GPU from batch to batch: graphs of passes without torch.no_grad(), or results.

A trace runs some of the batches; `extend` records what those that are left out keep as well.
"""

import collections

from .recorder import LIBRARY

ENOUGH = 3  # batches that show what is kept
_MOST_BLOCKS = 50_000  # that are recorded for what is left out; more are recorded as fewer, larger ones
_NAMED = 64  # a part of the peak that is worth a sentence


def _size(count):
    return f"{count / 2**30:.2f} GiB" if count >= 2**30 else f"{count / 2**20:.1f} MiB"


class Growth:
    """The growth in one loop. Call `begin_batch` before each batch."""

    def __init__(self, recorder):
        self._recorder = recorder
        self._starts = []  # the allocations before each batch
        self.sentence = ""

    def begin_batch(self):
        self._starts.append(self._recorder.count)

    def extend(self, left_out, has_graphs):
        """Records what the batches after the first three keep, of which the trace leaves some out. Returns false where
        they keep nothing.
        """
        starts = self._starts
        if len(starts) < ENOUGH:
            return False
        kept = [self._kept(*starts[:2]), self._kept(*starts[1:3])]
        kept = kept[1] if all(kept) else []
        grown = self._grown()
        if not kept and not grown:
            return False
        peak = self._recorder.peak_bytes
        each = sum(block.size for block in kept) + sum(block.size // ENOUGH for block in grown)
        for block in kept:
            self._repeat(block, left_out, -(-left_out * len(kept) // _MOST_BLOCKS))
        for block in grown:
            self._enlarge(block, left_out)
        batches = ENOUGH + 1 + left_out
        if each * batches * _NAMED > peak:
            line = max(kept or grown, key=lambda block: block.size).source
            advice = "put it under torch.no_grad()" if has_graphs else "move to the CPU what it keeps"
            self.sentence = (
                f"{line + ': ' if line else ''}the evaluation keeps {_size(each)} of each batch, "
                f"{_size(each * batches)} of {batches}: {advice}"
            )
        return True

    def _kept(self, first, end):
        """The blocks of one batch that are live after the next."""
        return [
            block
            for block in self._recorder.blocks.values()
            if first <= block.number < end and block.category != LIBRARY and block.size > 0
        ]

    def _grown(self):
        """The live blocks of the third batch that take the place of one of the second, with the results of all three."""
        second, third = collections.defaultdict(list), collections.defaultdict(list)
        for event in reversed(self._recorder.events):
            if event[0] != "a":
                continue
            block = event[1]
            if block.number < self._starts[1]:
                break
            found = third if block.number >= self._starts[2] else second
            found[block.op, block.stack].append(block)
        return [
            block
            for key, blocks in third.items()
            for block, before in zip(blocks, second.get(key, ()))
            if block.is_live and not before.is_live and block.size * 2 == before.size * 3
        ]

    def _repeat(self, block, count, in_one):
        recorder = self._recorder
        while count > 0:
            recorder.follow(block, recorder.repeat(block, block.size * min(count, in_one)))
            count -= in_one

    def _enlarge(self, block, left_out):
        """The block with the results of all batches but one, while that with all is made."""
        recorder, each = self._recorder, block.size // ENOUGH
        recorder.free(block)
        large = recorder.repeat(block, each * (ENOUGH + left_out))
        recorder.free(recorder.repeat(block, large.size + each))
        recorder.follow(block, large)
