"""Records the allocations of a traced program: blocks, their lifetimes, and the place in the program of each.

Knows storages and Python frames; knows no ops. trace_file.py writes the records.
"""

import os
import sys
import sysconfig
import weakref

# In the order of Headroom's trace format (base/memory_category.h).
OTHER, WEIGHTS, GRADIENTS, OPTIMIZER_STATE, ACTIVATIONS, INPUTS, WORKSPACE, LIBRARY = range(8)

PHASES = ("setup", "forward", "backward", "optimizer", "other", "evaluation")


def _library_folders():
    paths = sysconfig.get_paths()
    folders = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    folders.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return tuple(os.path.join(folder, "") for folder in folders)


_LIBRARY_FOLDERS = _library_folders()


_DISPATCH_FILES = tuple(
    os.path.join("torch", *name)
    for name in (
        ("_ops.py",),
        ("_compile.py",),
        ("_dynamo", "eval_frame.py"),
        ("utils", "_python_dispatch.py"),
    )
)


def is_user_file(path):
    """Returns true if a file is the user's own: outside Python, site-packages and this package."""
    is_compiled = path.endswith((".pyx", ".pxi", ".pxd"))  # by Cython
    if is_compiled or path.startswith("<") or "torchinductor" in path or "site-packages" in path or "dist-packages" in path:
        return False
    return not path.startswith(_LIBRARY_FOLDERS)


def is_own_file(path):
    """Returns true if a file is the tracer's, or the part of PyTorch that reports ops to it."""
    return path.startswith(_LIBRARY_FOLDERS[-1]) or path.endswith(_DISPATCH_FILES)


class Block:
    """One allocation. `category`, `tensor` and `module` may become known after the allocation."""

    __slots__ = (
        "number",
        "size",
        "op",
        "tensor",
        "category",
        "module",
        "source",
        "stack",
        "phase",
        "step",
        "is_live",
        "node",
        "stream",
    )

    def __init__(self, number, size, op, category, module, source, stack, phase, step):
        self.number = number
        self.size = size
        self.op = op
        self.tensor = ""
        self.category = category
        self.module = module
        self.source = source
        self.stack = stack
        self.phase = phase
        self.step = step
        self.is_live = True
        self.node = None
        self.stream = 0


class Recorder:
    """The events of a run, in order: ("a", block), ("f", block), ("m", step, phase), ("c",) where the program has the
    cache emptied.
    """

    def __init__(self):
        self.events = []
        self.blocks = {}  # address of a live storage -> Block
        self._references = {}
        self._followers = {}  # number of a block -> blocks that are freed with it
        self.count = 0
        self.live_bytes = 0
        self.peak_bytes = 0
        self.step = 0
        self.phase = "setup"
        self.stream = 0  # the number of the one that the program is in
        self.modules = []  # paths of the modules that run, the innermost last
        self.backward_module = None
        self.node = None  # the sequence number of the autograd node that runs
        self._names = {}  # (code, line) -> "file:line function"
        self._is_user = {}  # file -> bool
        self._is_own = {}
        self._stacks = {}

    # The current place in the program.

    def enter(self, phase, step=None):
        """From here on events belong to a phase, and a step."""
        if step is not None:
            self.step = step
        self.phase = phase
        self.events.append(("m", self.step, phase))

    def empty_cache(self):
        self.events.append(("c",))

    def module(self):
        if self.backward_module is not None:
            return self.backward_module
        return self.modules[-1] if self.modules else ""

    def stack(self):
        """(the user's line, all frames): "train.py:31" and the frames, innermost first."""
        key = []
        frame = sys._getframe(2)
        while frame is not None:
            code = frame.f_code
            own = self._is_own.get(code.co_filename)
            if own is None:
                own = self._is_own[code.co_filename] = is_own_file(code.co_filename)
            if not own:
                key.append((code, frame.f_lineno))
            frame = frame.f_back
        key = tuple(key)
        found = self._stacks.get(key)
        if found is None:
            found = self._stacks[key] = self._describe(key)
        return found

    def _describe(self, key):
        lines = []
        source = ""
        for code, line in key:
            text = self._names.get((code, line))
            if text is None:
                function = getattr(code, "co_qualname", code.co_name)  # qualified since Python 3.11
                text = self._names[(code, line)] = f"{code.co_filename}:{line} {function}"
            lines.append(text)
            if not source:
                user = self._is_user.get(code.co_filename)
                if user is None:
                    user = self._is_user[code.co_filename] = is_user_file(code.co_filename)
                if user:
                    source = f"{os.path.basename(code.co_filename)}:{line}"
        # The frames below the program, which started the trace, say nothing.
        while lines and ("runpy" in lines[-1] or lines[-1].startswith("<frozen")):
            lines.pop()
        return source, "\n".join(lines)

    # Blocks.

    def allocate(self, size, op, category=OTHER):
        source, stack = self.stack()
        block = Block(
            self.count, size, op, category, self.module(), source, stack, self.phase, self.step
        )
        block.node = self.node
        block.stream = self.stream
        return self._add(block)

    def _add(self, block):
        self.count += 1
        self.events.append(("a", block))
        self.live_bytes += block.size
        if self.live_bytes > self.peak_bytes:
            self.peak_bytes = self.live_bytes
        return block

    def free(self, block):
        for follower in self._followers.pop(block.number, ()):
            self.free(follower)
        if not block.is_live:
            return
        block.is_live = False
        self.live_bytes -= block.size
        self.events.append(("f", block))

    def repeat(self, block, size):
        """One more block like another, of a size."""
        like = (block.op, block.category, block.module, block.source, block.stack, block.phase, block.step)
        made = self._add(Block(self.count, size, *like))
        made.node, made.stream = block.node, block.stream
        return made

    def follow(self, block, follower):
        """Frees a block when, from now on, another is freed or would be."""
        self._followers.setdefault(block.number, []).append(follower)

    def find(self, tensor):
        """The block of a tensor's storage, or None if it is not on the GPU."""
        return self.blocks.get(tensor.untyped_storage()._cdata)

    def track(self, storage, op, category=OTHER):
        """Follows a storage until its last reference is gone. Storages without bytes are on the GPU too."""
        key = storage._cdata
        block = self.blocks.get(key)
        if block is not None:
            return block
        size = storage.nbytes()
        if size > 0:
            block = self.allocate(size, op, category)
        else:
            block = Block(-1, 0, op, category, "", "", "", self.phase, self.step)
        self.blocks[key] = block

        def drop(_, key=key, block=block):
            if self.blocks.get(key) is block:
                del self.blocks[key]
            self._references.pop(id(block), None)
            if block.size > 0:
                self.free(block)

        self._references[id(block)] = weakref.ref(storage, drop)
        return block

    def resize(self, storage):
        """A storage that was tracked has another size now: PyTorch allocates anew and frees the old."""
        old = self.blocks.get(storage._cdata)
        if old is not None and old.size != storage.nbytes():
            self.move(storage)

    def move(self, storage, op=None):
        """What is in a storage goes to memory of its own, by an op, and the old one is freed."""
        old = self.blocks.pop(storage._cdata, None)
        if old is None:
            return
        self._references.pop(id(old), None)
        self.track(storage, op or old.op, old.category)
        if old.size > 0:
            self.free(old)

    def stop(self):
        """No event is recorded any more, whatever is freed later."""
        self._references.clear()
