"""The range that a trace may lie in where values that a model computes decide sizes: its weights are random numbers, and
so are the boxes, tokens or lengths that follow from them.
"""

import os

from .child import ChildError
from .errors import TraceError
from .trace_file import add_settings

SEEDS = 3


def facts_of(trace):
    """The facts about a Trace that Seeds needs."""
    return {"peak_bytes": trace.peak_bytes, "drawn": trace.drawn, "requests": trace.requests}


class Seeds:
    """Traces a program with one seed, or, where what it computes decides sizes, with several, of which it keeps the trace
    that requests the most. Where the second requests the same as the first, nothing depends on it.
    """

    def __init__(self):
        self._largest = None  # the seed that requested the most; known after the first traces with several
        self._settings = {}

    def trace(self, output, trace):
        """Writes a trace to `output` and returns the facts about it. `trace(output, seed)` makes one and returns its facts,
        of which "drawn" says if computed values that follow from random numbers decided sizes, and "peak_bytes" is the
        most that was requested; or None. After the first time the seed that gave the most then is the only one.
        """
        if self._largest is not None:
            facts = trace(output, self._largest)
            add_settings(output, self._settings)
            return facts
        folder, name = os.path.split(output)
        facts = trace(output, 0)
        if not facts or not facts.get("drawn"):
            return facts
        found = {0: (facts, output)}
        for seed in range(1, SEEDS):
            path = os.path.join(folder, f"seed{seed}-{name}")
            try:
                found[seed] = (trace(path, seed), path)
            except (TraceError, ValueError, ChildError):  # what it draws leads elsewhere
                _remove(path)
                continue
            if seed == 1 and found[1][0]["requests"] == facts["requests"]:
                _remove(found.pop(1)[1])
                break
        peaks = [facts["peak_bytes"] for facts, _ in found.values()]
        self._largest = max(found, key=lambda seed: found[seed][0]["peak_bytes"])
        self._settings = {"seed_peaks": " ".join(map(str, peaks))} if len(peaks) > 1 else {}
        facts, path = found.pop(self._largest)
        if path != output:
            os.replace(path, output)
        for _, other in found.values():
            if other != output:
                _remove(other)
        add_settings(output, self._settings)
        return facts


def _remove(path):
    if os.path.exists(path):
        os.remove(path)
