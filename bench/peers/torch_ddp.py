"""The examples' conv net trained by PyTorch's DistributedDataParallel, one process a GPU: weak scaling.

The data is on each device; fused Adam, channels_last, TF32, or autocast to bf16 over it, cuDNN's own benchmark. A run
without DDP comes first, in the same processes: it shows what a step takes alone on each GPU.
Usage: torch_ddp.py DATA GPUS BATCH_OF_A_GPU STEPS [tf32|bf16]
"""
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

import torch_mnist

WARM_UP, ROUNDS = 20, 5


def steps_per_round(steps):
    return max(1, steps // ROUNDS)


def microseconds(net, images, labels, batch, steps, math):
    """Time per step, the median of several rounds that the ranks begin together."""
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)
    order = torch.randint(0, len(images), (batch * 64,), device='cuda')

    def step(k):
        rows = order[k % 64 * batch:(k % 64 + 1) * batch]
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast('cuda', torch.bfloat16, enabled=math == 'bf16'):
            loss = F.cross_entropy(net(torch_mnist.as_input(images[rows])), labels[rows])
        loss.backward()
        optimizer.step()

    for k in range(WARM_UP):
        step(k)
    times = []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        dist.barrier()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for k in range(steps_per_round(steps)):
            step(k)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / steps_per_round(steps) * 1e6)
    return statistics.median(times)


def run(rank, folder, gpus, batch, steps, math):
    torch.cuda.set_device(rank)
    dist.init_process_group('nccl', rank=rank, world_size=gpus)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    images, labels = torch_mnist.on_gpu(folder, 'train')

    def net():
        torch.manual_seed(0)
        return torch_mnist.Net().cuda().to(memory_format=torch.channels_last)

    alone = microseconds(net(), images, labels, batch, steps, math)
    together = microseconds(DistributedDataParallel(net(), device_ids=[rank], gradient_as_bucket_view=True), images,
                            labels, batch, steps, math)
    if rank == 0:
        print('RESULT', f'{math} PyTorch {torch.__version__.split("+")[0]} DDP', gpus, batch, f'{alone:.1f}', f'{together:.1f}',
              flush=True)
    dist.destroy_process_group()


def main():
    if len(sys.argv) not in (5, 6) or sys.argv[5:] not in ([], ['tf32'], ['bf16']):
        raise SystemExit(__doc__)
    folder, gpus, batch, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    math = sys.argv[5] if len(sys.argv) == 6 else 'tf32'
    os.environ.setdefault('MASTER_ADDR', '127.0.0.1')
    os.environ.setdefault('MASTER_PORT', '29512')
    os.environ.setdefault('NCCL_NVLS_ENABLE', '0')  # as ours: multicast is not set up on every machine
    torch.multiprocessing.spawn(run, (folder, gpus, batch, steps, math), gpus)


if __name__ == '__main__':
    main()
