"""The training step of bench/train_step in PyTorch on one CPU core: same net, batch, optimizer and dtype.

Usage: torch_step.py [batch [steps]]
"""
import statistics
import sys
import time

import torch
import torch.nn.functional as F

from torch_mnist import Net


def measure(batch, steps, layout, compiled):
    torch.manual_seed(0)
    net = Net().to(memory_format=layout)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)
    images = torch.randint(0, 256, (batch, 1, 28, 28), dtype=torch.uint8)
    labels = torch.randint(0, 10, (batch,))
    forward = torch.compile(net) if compiled else net

    def step():
        optimizer.zero_grad(set_to_none=True)
        x = (images.float() * (1 / 255)).contiguous(memory_format=layout)
        loss = F.cross_entropy(forward(x), labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    for _ in range(10):
        step()
    times = []
    for _ in range(steps):
        start = time.perf_counter()
        step()
        times.append((time.perf_counter() - start) * 1e6)
    name = 'channels_last' if layout == torch.channels_last else 'contiguous'
    print(f'torch {torch.__version__} {name}{" compiled" if compiled else ""}: step {statistics.median(times):.1f} us',
          flush=True)


if __name__ == '__main__':
    batch = int(sys.argv[1]) if len(sys.argv) > 1 else 64
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 300
    torch.set_num_threads(1)
    measure(batch, steps, torch.channels_last, False)
    measure(batch, steps, torch.contiguous_format, False)
    if '--compile' in sys.argv:
        measure(batch, steps, torch.channels_last, True)
