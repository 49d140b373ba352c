"""Writes what a recorder holds in Headroom's trace format, version 4 (docs/replay.md)."""

import gzip
import re

from .recorder import PHASES

_ESCAPED = re.compile(r"[\x00-\x1f\x7f,%]")
_ALIGNMENT = 512
_BASE = 0x7F0000000000
_UNKNOWN_NS = 0  # a trace has an order and no times


def _escape(text):
    return _ESCAPED.sub(lambda match: f"%{ord(match.group()):02x}", text)


def _shorten(text, limit):
    """At most `limit` bytes of a name, in whole lines where it has several."""
    if len(text.encode()) <= limit:
        return text
    cut = text.encode()[:limit].decode(errors="ignore")
    return cut.rpartition("\n")[0] or cut


def trace_lines(recorder, settings):
    """The lines of the trace, in order."""
    yield "headroom-trace 4"
    for name, value in settings.items():
        yield f"s,{_escape(name)},{_escape(value)}"
    names = {"": 0}
    next_address = _BASE
    addresses = {}

    def number(text):
        found = names.get(text)
        if found is None:
            found = names[text] = len(names)
            pending.append(f"n,{_escape(text)}")
        return found

    pending = []
    # The limits of a trace file, docs/replay.md.
    name_bytes, stack_bytes = 1024, 16 * 1024
    for event in recorder.events:
        kind = event[0]
        if kind == "m":
            yield f"m,{event[1]},{PHASES.index(event[2])},{_UNKNOWN_NS}"
            continue
        if kind == "c":
            yield f"c,{_UNKNOWN_NS}"
            continue
        block = event[1]
        if kind == "f":
            yield f"f,{addresses.pop(block.number):x},{block.stream},{_UNKNOWN_NS}"
            continue
        columns = [
            number(_shorten(text, name_bytes))
            for text in (block.op, block.tensor, block.source, block.module or "")
        ]
        columns.append(number(_shorten(block.stack, stack_bytes)))
        yield from pending
        pending.clear()
        op, tensor, source, module, stack = columns
        addresses[block.number] = next_address
        yield (
            f"a,{next_address:x},{block.size},0,{block.stream},{_UNKNOWN_NS},{op},{tensor},{source},{block.category},"
            f"{module},{stack}"
        )
        next_address += -(-block.size // _ALIGNMENT) * _ALIGNMENT


def _open(path, mode):
    opens = gzip.open if str(path).endswith(".gz") else open
    return opens(path, mode, encoding="utf-8", newline="\n")


def add_settings(path, settings):
    """Adds settings to a trace in a file."""
    with _open(path, "rt") as file:
        first, *rest = file.readlines()
    with _open(path, "wt") as file:
        file.write(first)
        file.writelines(f"s,{_escape(name)},{_escape(value)}\n" for name, value in settings.items())
        file.writelines(rest)


def write_trace(path, recorder, settings):
    with _open(path, "wt") as file:
        for line in trace_lines(recorder, settings):
            file.write(line + "\n")
