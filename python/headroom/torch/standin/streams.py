"""Streams and events of the GPU. Work is done at once; what a program allocates within a stream stays that stream's, as in
PyTorch's allocator, which keeps free blocks by stream."""

import itertools

import torch

from ..unknown import UnknownNumber
from .patch import patch_all


class Event:
    """An event that has happened."""

    cuda_event = 0

    def __init__(self, *args, **kwargs):
        pass

    def query(self):
        return True

    def elapsed_time(self, other):
        return UnknownNumber("the time of an event")

    def record(self, *_):
        pass

    wait = synchronize = record


def install(tracer, stack):
    recorder = tracer.recorder
    numbers = itertools.count(1)

    class Stream:
        """A stream that has done its work. The default one has the number 0."""

        def __init__(self, device=None, priority=0, *, number=None, **_):
            self.number = next(numbers) if number is None else number
            self.device = tracer.gpu.device
            self.device_index = tracer.gpu.index
            self.device_type = 1  # a GPU of NVIDIA
            self.priority = priority
            self._outer = []

        def is_capturing(self):  # PyTorch 2.15 asks in optimizers
            return False

        @property
        def cuda_stream(self):
            return self.number

        stream_id = cuda_stream

        def __eq__(self, other):
            return isinstance(other, Stream) and other.number == self.number

        def __hash__(self):
            return hash(self.number)

        def __enter__(self):
            self._outer.append(recorder.stream)
            recorder.stream = self.number
            return self

        def __exit__(self, *_):
            recorder.stream = self._outer.pop()
            return False

        def query(self):
            return True

        def synchronize(self, *_):
            pass

        wait_stream = wait_event = synchronize

        def record_event(self, event=None):
            return event or Event()

    class StreamContext:
        """torch.cuda.stream(s), which leaves the current stream where s is None."""

        def __init__(self, stream):
            self.stream = stream

        def __enter__(self):
            if isinstance(self.stream, Stream):
                self.stream.__enter__()

        def __exit__(self, *_):
            if isinstance(self.stream, Stream):
                self.stream.__exit__()

    def set_stream(stream):
        recorder.stream = getattr(stream, "number", 0)

    values = {
        "Stream": Stream,
        "ExternalStream": Stream,
        "Event": Event,
        "stream": StreamContext,
        "StreamContext": StreamContext,
        "current_stream": lambda *_, **__: Stream(number=recorder.stream),
        "default_stream": lambda *_, **__: Stream(number=0),
        "set_stream": set_stream,
    }
    patch_all(stack, torch.cuda, values)
    patch_all(stack, torch.cuda.streams, values)
    # torch.Stream and torch.Event are the same for all devices.
    patch_all(stack, torch, {"Stream": Stream, "Event": Event})
    if hasattr(torch, "accelerator"):
        names = ("current_stream", "set_stream")
        patch_all(stack, torch.accelerator, {name: values[name] for name in names})
