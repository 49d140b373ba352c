"""Asks cuDNN which workspace a convolution takes. cuDNN answers without a GPU.

Since version 9.8 cuDNN's heuristics take the properties of a device in place of a device. The
answer is that of the first engine that PyTorch would take (get_configs_from_heuristics in
ATen/native/cudnn/Conv_v8.cpp). It holds for the version of cuDNN that PyTorch has loaded here.
Knows no tensors.
"""

import ctypes
import functools
import json
import struct

import torch

_OLDEST = 90800

# cudnnBackendDescriptorType_t
_CONVOLUTION, _ENGINE, _ENGINE_CONFIG, _HEURISTICS, _GRAPH, _TENSOR, _DEVICE = (
    1,
    2,
    3,
    4,
    15,
    17,
    38,
)
# cudnnBackendAttributeType_t -> the type in C
_DATA_TYPE, _INT64, _FLOAT, _DOUBLE, _MODE, _HEURISTIC, _DESCRIPTOR, _NOTE, _CHAR = (
    1,
    3,
    4,
    5,
    7,
    8,
    15,
    11,
    24,
)
_C_TYPES = {
    _DATA_TYPE: ctypes.c_int,
    _INT64: ctypes.c_int64,
    _FLOAT: ctypes.c_float,
    _DOUBLE: ctypes.c_double,
    _MODE: ctypes.c_int,
    _HEURISTIC: ctypes.c_int,
    _DESCRIPTOR: ctypes.c_void_p,
    _NOTE: ctypes.c_int,
    _CHAR: ctypes.c_char,
}
# cudnnDataType_t
_DATA_TYPES = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 9}

# Numbers for each operation: its descriptor, and its attributes alpha, beta, convolution, input,
# weight, output.
FORWARD = (10, 700, 701, 702, 704, 703, 705)
INPUT_GRADIENT = (12, 706, 707, 708, 710, 709, 711)
WEIGHT_GRADIENT = (11, 712, 713, 714, 716, 715, 717)

_TENSOR_CORE, _DOWN_CONVERTS, _NONDETERMINISTIC = 0, 1, 4  # cudnnBackendNumericalNote_t
_INSTANT, _FALLBACK = 0, 2  # cudnnBackendHeurMode_t
_MOST_CONFIGS = 64


class _Refused(Exception):
    """cuDNN does not take what it was asked for."""


@functools.lru_cache(maxsize=1)
def library():
    """cuDNN as PyTorch has loaded it, or None if it is not there or too old."""
    if not torch.backends.cudnn.is_available() and torch.version.cuda is None:
        return None
    try:
        library = ctypes.CDLL("libcudnn.so.9")
        library.cudnnGetVersion.restype = ctypes.c_size_t
        return library if library.cudnnGetVersion() >= _OLDEST else None
    except (OSError, AttributeError):
        return None


# Shared memory that a block may ask for: CUDA C++ programming guide, "compute capabilities", less
# the 1 KiB that the system takes from capability 8.0 on.
_SHARED_BYTES = {
    (6, 1): 48 << 10,
    (7, 0): 96 << 10,
    (7, 5): 64 << 10,
    (8, 0): 163 << 10,
    (8, 6): 99 << 10,
    (8, 9): 99 << 10,
    (9, 0): 227 << 10,
    (12, 0): 99 << 10,
}
_PROCESSORS_OF_CLUSTER = {9: 18, 12: 12}  # at most, in one cluster (GPC), by major capability
# Clusters that cuDNN has measured on an H200; cards of one model differ a little.
_MEASURED_CLUSTERS = {((9, 0), 132): [18, 18, 16, 16, 16, 16, 16, 8, 2, 2, 2, 2]}


def _properties(gpu):
    """Returns the properties that cuDNN queries from a device (queryFromDevice). Clocks and cache do not change its
    answers.
    """
    return {
        "version": 1,
        "deviceVer": gpu.capability[0] * 100 + gpu.capability[1] * 10,
        "driverVer": 13000,
        "cudaDeviceId": 0,
        "deviceName": gpu.title,
        "maxGridSize": [(1 << 31) - 1, 65535, 65535],
        "maxBlockSize": [1024, 1024, 64],
        "regsPerBlock": 65536,
        "multiProcessorCount": gpu.processors,
        "warpSize": 32,
        "maxSharedMemoryPerBlock": 48 << 10,
        "maxSharedMemoryPerBlockOptin": _SHARED_BYTES[gpu.capability],
        "reservedSharedMemoryPerBlock": 1024 if gpu.capability >= (8, 0) else 0,
        "maxRegistersPerSM": 65536,
        "maxCtasPerSM": 32,
        "maxThreadsPerBlock": 1024,
        "maxThreadsPerSM": gpu.threads,
        "pciDeviceId": 0,
        "isTccDriver": 0,
        "supportCoopLaunch": 1,
        "smClockRateKHz": 1_700_000,
        "memClockRateKHz": 2_600_000,
        "l2CacheSize": 48 << 20,
        "totalGlobalMem": gpu.total_bytes,
    }


class Heuristics:
    """The workspaces of convolutions on one GPU, of all engines, the first choice first; none where cuDNN does not
    answer.
    """

    def __init__(self, gpu):
        self._gpu = gpu
        self._library = library()
        self._found = {}

    @functools.cached_property
    def _device(self):
        """cuDNN's descriptor of the GPU, or None. cuDNN loads its tables with the first one."""
        if self._library is None:
            return None
        text = json.dumps(_properties(self._gpu)).encode()
        try:
            device = self._new(_DEVICE)
            self._set(device, 2702, _CHAR, text)
            self._finish(device)
        except _Refused:
            return None
        _set_clusters(device, self._gpu)
        return device

    def workspaces_bytes(self, operation, dtype, tensors, stride, padding, dilation):
        """`operation` is one of the three above, `tensors` the (sizes, strides) of input, weight and output."""
        if dtype not in _DATA_TYPES or self._device is None:
            return []
        flags = torch.backends.cudnn
        key = (operation, dtype, tensors, stride, padding, dilation)
        key += (flags.allow_tf32, flags.deterministic)
        if key not in self._found:
            try:
                self._found[key] = self._ask(*key)
            except _Refused:
                self._found[key] = []
        return self._found[key]

    def _ask(self, operation, dtype, tensors, stride, padding, dilation, allow_tf32, deterministic):
        made = []
        try:
            graph = self._graph(made, operation, dtype, tensors, stride, padding, dilation)
            found = []
            for mode in _INSTANT, _FALLBACK:  # in the order in which PyTorch tries them
                for config in self._configs(made, graph, mode):
                    engine = self._new(_ENGINE, made)
                    self._get(config, 300, _DESCRIPTOR, [engine])
                    notes = self._get(engine, 1303, _NOTE, [0] * 16)
                    if not _is_left_out(notes, dtype, allow_tf32, deterministic):
                        found += self._get(config, 303, _INT64, [0])
            return found
        finally:
            for descriptor in reversed(made):
                self._library.cudnnBackendDestroyDescriptor(ctypes.c_void_p(descriptor))

    def _configs(self, made, graph, mode):
        heuristics = self._new(_HEURISTICS, made)
        self._set(heuristics, 201, _DESCRIPTOR, [graph])
        self._set(heuristics, 200, _HEURISTIC, [mode])
        self._set(heuristics, 204, _DESCRIPTOR, [self._device])
        self._finish(heuristics)
        return self._get(heuristics, 202, _DESCRIPTOR, [self._new(_ENGINE_CONFIG, made) for _ in range(_MOST_CONFIGS)])

    def _graph(self, made, operation, dtype, tensors, stride, padding, dilation):
        is_double = dtype == torch.float64
        convolution = self._new(_CONVOLUTION, made)
        self._set(convolution, 100, _DATA_TYPE, [1 if is_double else 0])  # sums
        self._set(convolution, 101, _MODE, [1])  # cross-correlation
        self._set(convolution, 106, _INT64, [len(stride)])
        self._set(convolution, 102, _INT64, dilation)
        self._set(convolution, 103, _INT64, stride)
        self._set(convolution, 104, _INT64, padding)
        self._set(convolution, 105, _INT64, padding)
        self._finish(convolution)
        kind, alpha, beta, *attributes = operation
        node = self._new(kind, made)
        self._set(node, attributes[0], _DESCRIPTOR, [convolution])
        for number, (attribute, (sizes, strides)) in enumerate(zip(attributes[1:], tensors)):
            tensor = self._new(_TENSOR, made)
            self._set(tensor, 900, _INT64, [16])  # alignment
            self._set(tensor, 901, _DATA_TYPE, [_DATA_TYPES[dtype]])
            self._set(tensor, 902, _INT64, sizes)
            self._set(tensor, 903, _INT64, strides)
            self._set(tensor, 906, _INT64, [120 + number])
            self._finish(tensor)
            self._set(node, attribute, _DESCRIPTOR, [tensor])
        scale = _DOUBLE if is_double else _FLOAT
        self._set(node, alpha, scale, [1.0])
        self._set(node, beta, scale, [0.0])
        self._finish(node)
        graph = self._new(_GRAPH, made)
        self._set(graph, 801, _DESCRIPTOR, [node])
        self._finish(graph)
        return graph

    # cuDNN's backend: descriptors are made, get attributes, and are finished.

    def _new(self, kind, made=None):
        descriptor = ctypes.c_void_p()
        self._check(self._library.cudnnBackendCreateDescriptor(kind, ctypes.byref(descriptor)))
        if made is not None:
            made.append(descriptor.value)
        return descriptor.value

    def _set(self, descriptor, attribute, kind, values):
        array = (_C_TYPES[kind] * len(values))(*values)
        count = ctypes.c_int64(len(values))
        self._check(
            self._library.cudnnBackendSetAttribute(
                ctypes.c_void_p(descriptor), attribute, kind, count, array
            )
        )

    def _get(self, descriptor, attribute, kind, values):
        """The attribute's values; descriptors among `values` are filled and returned."""
        array = (_C_TYPES[kind] * len(values))(*values)
        count = ctypes.c_int64()
        self._check(
            self._library.cudnnBackendGetAttribute(
                ctypes.c_void_p(descriptor),
                attribute,
                kind,
                ctypes.c_int64(len(values)),
                ctypes.byref(count),
                array,
            )
        )
        return list(array[: min(count.value, len(values))])

    def _finish(self, descriptor):
        self._check(self._library.cudnnBackendFinalize(ctypes.c_void_p(descriptor)))

    @staticmethod
    def _check(status):
        if status != 0:
            raise _Refused(status)


def _is_left_out(notes, dtype, allow_tf32, deterministic):
    """Engines that PyTorch does not take (filterEngineConfigs)."""
    if deterministic and _NONDETERMINISTIC in notes:
        return True
    if dtype != torch.float32:
        return False
    return _DOWN_CONVERTS in notes or (not allow_tf32 and _TENSOR_CORE in notes)


_MOST_CLUSTERS = 24
_LARGEST_LAUNCHES = 16, 32  # of cuDNN 9.8 to 9.19, and of 9.26
_WORDS = 128  # a descriptor has 560 bytes or more


def _set_clusters(device, gpu):
    """Tells cuDNN how multiprocessors lie in clusters, which the text of properties cannot say.

    From capability 9.0 on cuDNN measures it on a device: the multiprocessors of each cluster, and
    how many groups of 1 to 16 blocks run at once (1 to 32 fit the sizes that 9.26 gives); kernels
    that split their sums fill them. Where another version of cuDNN has them elsewhere, its own assumption stays.
    """
    most = _PROCESSORS_OF_CLUSTER.get(gpu.capability[0])
    if most is None:
        return
    memory = (ctypes.c_int32 * _WORDS).from_address(device)
    versions = [gpu.capability[0] * 100 + gpu.capability[1] * 10, 13000]
    place = _clusters_place(list(memory), versions, gpu.title)
    if place is None:
        return
    first, largest = place
    sizes = _MEASURED_CLUSTERS.get((gpu.capability, gpu.processors))
    sizes = sizes or _cluster_sizes(gpu.processors, most)
    for index, size in enumerate(sizes):
        memory[first + index] = size
    for blocks in range(1, largest + 1):
        memory[first + _MOST_CLUSTERS + blocks - 1] = sum(size // blocks for size in sizes)


def _clusters_place(words, versions, title):
    """Returns the position of the clusters in a descriptor and the number of group sizes, or None.

    They lie after the versions of device and driver (in 9.26 one more word, which is zero) and
    before the name of the device. Of the clusters cuDNN has assumed one.
    """
    name = title.encode()[:8]
    for place in range(len(words) - _MOST_CLUSTERS):
        if words[place : place + 2] != versions:
            continue
        for first in (place + 2, place + 3):
            launches = first + _MOST_CLUSTERS
            if any(words[place + 2 : first]) or words[first] <= 0:
                continue
            if any(words[first + 1 : launches]):
                continue
            for largest in _LARGEST_LAUNCHES:
                found = words[launches + largest : launches + largest + 2]
                if struct.pack(f"{len(found)}i", *found)[: len(name)] == name:
                    return first, largest
    return None


def _cluster_sizes(processors, most):
    """Full clusters, and two for the rest."""
    sizes = [most] * max((processors - most) // most, 0)
    rest = processors - sum(sizes)
    first = min(rest, most - 2)
    return [size for size in sizes + [first, rest - first] if size > 0]
