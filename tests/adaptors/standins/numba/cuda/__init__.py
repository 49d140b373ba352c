import abc
import collections
import types
import weakref

MemoryInfo = collections.namedtuple("MemoryInfo", "free,total")
_manager_class = None
_manager = None
context = types.SimpleNamespace(device=types.SimpleNamespace(id=0))


class MemoryPointer:
    def __init__(self, context, pointer, size, owner=None, finalizer=None):
        self.device_pointer, self.size = pointer, size
        if finalizer is not None:
            weakref.finalize(self, finalizer)


class BaseCUDAMemoryManager(metaclass=abc.ABCMeta):
    def __init__(self, *args, **kwargs):
        self.context = kwargs.pop("context")

    @abc.abstractmethod
    def memalloc(self, size): ...

    @abc.abstractmethod
    def initialize(self): ...

    @abc.abstractmethod
    def get_ipc_handle(self, memory): ...

    @abc.abstractmethod
    def get_memory_info(self): ...

    @property
    @abc.abstractmethod
    def interface_version(self): ...


class HostOnlyCUDAMemoryManager(BaseCUDAMemoryManager):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.allocations = {}

    def reset(self):
        self.allocations.clear()


def set_memory_manager(plugin):
    global _manager_class
    dummy = plugin(context=None)
    if dummy.interface_version != 1:
        raise RuntimeError("EMM Plugin interface has version other than 1")
    _manager_class = plugin


def manager():
    global _manager
    if _manager is None:
        _manager = _manager_class(context=context)
        _manager.initialize()
    return _manager
