"""Finds which of the processes that train together takes the most memory. Knows what a trace of one gives, and no tracer."""

_MOST_RANKS = 16  # that are traced where they differ


def of_largest_rank(ranks, trace):
    """Traces the ranks that differ, and returns the facts of the largest, which `trace(rank)` gives last. Adds the note
    `ranks` to them. Where the first and the last rank make the same requests, all are taken to do so.
    """
    last = trace(ranks - 1)
    first = trace(0)
    if first["requests"] == last["requests"]:
        return {**first, "ranks": f"rank 0 of {ranks}, whose requests are those of rank {ranks - 1}"}
    taken = {0: first["requests"][1:], ranks - 1: last["requests"][1:]}
    step = -(-ranks // _MOST_RANKS)
    for rank in range(step, ranks - 1, step):
        taken[rank] = trace(rank)["requests"][1:]
    largest = max(sorted(taken), key=lambda rank: sum(taken[rank]))
    facts = trace(largest)
    peaks = {rank: peak for rank, (peak, _) in taken.items()}
    return {**facts, "ranks": f"rank {largest} of {ranks}, which takes the most; {_listed(peaks)}"}


def _listed(peaks):
    """The peaks of ranks, equal ones together: "at most 612.0 MiB live at once in rank 0, 597.5 MiB in 1 and 2"."""
    alike = {}
    for rank in sorted(peaks):
        alike.setdefault(f"{peaks[rank] / 2**20:.1f} MiB", []).append(str(rank))
    parts = [f"{peak} in {', '.join(ranks)}" for peak, ranks in alike.items()]
    return "live at once, at most: " + "; ".join(parts)
