"""The GPUs a program can be traced for: what PyTorch, cuBLAS and cuDNN ask a GPU about themselves."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Gpu:
    name: str  # as in `headroom predict --device sim:NAME`
    title: str  # as torch.cuda.get_device_name() gives it
    capability: tuple  # compute capability
    processors: int  # streaming multiprocessors
    total_bytes: int
    index: int = 0  # in its machine

    @property
    def threads(self):
        """Resident threads of one multiprocessor."""
        return _THREADS[self.capability]

    @property
    def cache_bytes(self):
        """Returns the size of its L2 cache, as its driver gives it; that of the smallest where it is not known."""
        return _CACHES.get(self.name, 4 << 20)

    @property
    def device(self):
        return torch.device("cuda", self.index)

    @property
    def blas_workspace_bytes(self):
        """Returns the workspace that PyTorch gives a cuBLAS handle: getChosenWorkspaceSize in CUDABlas
        (CublasHandlePool.cpp).
        """
        return 32 << 20 if self.capability[0] in (9, 10) else (4096 * 2 + 16 * 8) << 10


# CUDA C++ programming guide, "compute capabilities".
_THREADS = {
    (6, 1): 2048,
    (7, 0): 2048,
    (7, 5): 1024,
    (8, 0): 2048,
    (8, 6): 1536,
    (8, 9): 1536,
    (9, 0): 2048,
    (12, 0): 1536,
}

# L2 caches, from NVIDIA's architecture papers.
_CACHES = {
    "h200": 60 << 20,
    "h100": 50 << 20,
    "a100-80gb": 40 << 20,
    "a100-40gb": 40 << 20,
    "l40s": 96 << 20,
    "l4": 48 << 20,
    "a10": 6 << 20,
    "rtx-a6000": 6 << 20,
    "rtx-5090": 96 << 20,
    "rtx-4090": 72 << 20,
    "rtx-4080": 64 << 20,
    "rtx-4070": 36 << 20,
    "rtx-4060": 24 << 20,
    "rtx-3090": 6 << 20,
    "rtx-3080": 5 << 20,
}

# A row for each profile of `headroom devices` (device/host/profiles.cpp), and what a simulated device does
# not need: its title and its multiprocessors, from NVIDIA's architecture papers. The package is also installed
# without the command, so it has the rest again; TracedGpus in tests/tools/trace/program_test.cpp compares all of it.
GPUS = (
    Gpu("h200", "NVIDIA H200", (9, 0), 132, 150_110_011_392),
    Gpu("h100", "NVIDIA H100 80GB HBM3", (9, 0), 132, 85_017_755_648),
    Gpu("a100-80gb", "NVIDIA A100-SXM4-80GB", (8, 0), 108, 84_987_740_160),
    Gpu("a100-40gb", "NVIDIA A100-PCIE-40GB", (8, 0), 108, 42_298_834_944),
    Gpu("l40s", "NVIDIA L40S", (8, 9), 142, 47_576_711_168),
    Gpu("l4", "NVIDIA L4", (8, 9), 58, 23_612_293_120),
    Gpu("a10", "NVIDIA A10", (8, 6), 72, 23_609_475_072),
    Gpu("rtx-a6000", "NVIDIA RTX A6000", (8, 6), 84, 48_676 << 20),
    Gpu("rtx-5090", "NVIDIA GeForce RTX 5090", (12, 0), 170, 33_660_534_784),
    Gpu("rtx-4090", "NVIDIA GeForce RTX 4090", (8, 9), 128, 25_386_352_640),
    Gpu("rtx-4080", "NVIDIA GeForce RTX 4080", (8, 9), 76, 15_945 << 20),
    Gpu("rtx-4070", "NVIDIA GeForce RTX 4070", (8, 9), 46, 11_866 << 20),
    Gpu("rtx-4060", "NVIDIA GeForce RTX 4060", (8, 9), 24, 7_813 << 20),
    Gpu("rtx-3090", "NVIDIA GeForce RTX 3090", (8, 6), 82, 25_443_893_248),
    Gpu("rtx-3080", "NVIDIA GeForce RTX 3080", (8, 6), 68, 10_472_390_656),
    Gpu("rtx-3070", "NVIDIA GeForce RTX 3070", (8, 6), 46, 8_361_213_952),
    Gpu("rtx-3060", "NVIDIA GeForce RTX 3060", (8, 6), 28, 12_587_106_304),
    Gpu("rtx-2080ti", "GeForce RTX 2080 Ti", (7, 5), 68, 11_554_717_696),
    Gpu("four-2080ti", "GeForce RTX 2080 Ti", (7, 5), 68, 11_554_717_696),
    Gpu("rtx-2060", "GeForce RTX 2060", (7, 5), 30, 6_222_839_808),
    Gpu("card-6gb", "GeForce RTX 2060", (7, 5), 30, 6_144 << 20),
    Gpu("t4", "Tesla T4", (7, 5), 40, 15_095 << 20),
    Gpu("v100-32gb", "Tesla V100-SXM2-32GB", (7, 0), 80, 32_492 << 20),
    Gpu("v100-16gb", "Tesla V100-SXM2-16GB", (7, 0), 80, 16_928_342_016),
    Gpu("laptop-2gb", "GeForce MX150", (6, 1), 3, 2_002 << 20),
)


def find_gpu(name):
    """The GPU of a name such as "rtx-3090", "sim:rtx-3090" or "sim" (the profile that a simulated device has without a
    name); ValueError for one that is not known.
    """
    wanted = "laptop-2gb" if name == "sim" else name.removeprefix("sim:").partition(":")[0].lower()
    for gpu in GPUS:
        if gpu.name.replace("-", "") == wanted.replace("-", ""):
            return gpu
    known = ", ".join(gpu.name for gpu in GPUS)
    raise ValueError(f"unknown device '{name}'; known: {known}")
