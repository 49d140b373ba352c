"""The GPUs a program can be traced for: what PyTorch, cuBLAS and cuDNN ask a GPU about themselves."""

from dataclasses import dataclass

import torch

_GIB = 1 << 30


@dataclass(frozen=True)
class Gpu:
    name: str            # as in `headroom predict --device sim:NAME`
    title: str           # as torch.cuda.get_device_name() gives it
    capability: tuple    # compute capability
    processors: int      # streaming multiprocessors
    threads: int         # resident threads of one of them
    total_bytes: int

    @property
    def device(self):
        return torch.device("cuda", 0)

    @property
    def blas_workspace_bytes(self):
        """What PyTorch gives to a cuBLAS handle: getChosenWorkspaceSize in CUDABlas (CublasHandlePool.cpp)."""
        return 32 << 20 if self.capability[0] in (9, 10) else (4096 * 2 + 16 * 8) << 10


# Compute capability, multiprocessors and threads: CUDA C++ programming guide, "compute capabilities", and
# NVIDIA's architecture papers.
GPUS = (
    Gpu("h200", "NVIDIA H200", (9, 0), 132, 2048, 150_110_011_392),
    Gpu("h100", "NVIDIA H100 80GB HBM3", (9, 0), 132, 2048, 85_045_870_592),
    Gpu("a100-80g", "NVIDIA A100-SXM4-80GB", (8, 0), 108, 2048, 85_174_583_296),
    Gpu("a100-40g", "NVIDIA A100-SXM4-40GB", (8, 0), 108, 2048, 42_297_786_368),
    Gpu("rtx-4090", "NVIDIA GeForce RTX 4090", (8, 9), 128, 1536, 25_386_352_640),
    Gpu("rtx-3090", "NVIDIA GeForce RTX 3090", (8, 6), 82, 1536, 25_438_126_080),
    Gpu("rtx-3060", "NVIDIA GeForce RTX 3060", (8, 6), 28, 1536, 12_622_168_064),
    Gpu("rtx-2080-ti", "NVIDIA GeForce RTX 2080 Ti", (7, 5), 68, 1024, 11_546_394_624),
    Gpu("t4", "Tesla T4", (7, 5), 40, 1024, 15_828_320_256),
    Gpu("v100", "Tesla V100-SXM2-16GB", (7, 0), 80, 2048, 16_935_682_048),
)


def find_gpu(name):
    """The GPU with a name such as "rtx-3090" or "sim:rtx-3090"; ValueError for one that is not known."""
    wanted = name.removeprefix("sim:").lower().replace(" ", "-").replace("_", "-")
    for gpu in GPUS:
        if gpu.name == wanted or gpu.name.replace("-", "") == wanted.replace("-", ""):
            return gpu
    known = ", ".join(gpu.name for gpu in GPUS)
    raise ValueError(f"unknown device '{name}'; known: {known}")
