"""The examples' conv net trained by PyTorch on one GPU, eagerly or with the whole step in a CUDA graph.

Data on the device, fused Adam, channels_last, cuDNN's own benchmark: PyTorch at its best. An epoch is timed from its
shuffle to a synchronization. Usage: torch_mnist.py DATA eager|graph f32|tf32|bf16 EPOCHS BATCH...
"""
import statistics
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

import mnist


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1, self.c2, self.c3 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3), nn.Conv2d(64, 64, 3)
        self.f1, self.f2 = nn.Linear(576, 64), nn.Linear(64, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.c1(x)), 2)
        x = F.max_pool2d(F.relu(self.c2(x)), 2)
        return self.f2(F.relu(self.f1(F.relu(self.c3(x)).flatten(1))))


def on_gpu(folder, split):
    images, labels = mnist.load(folder, split)
    return torch.tensor(images, device='cuda'), torch.tensor(labels, device='cuda').long()


def as_input(images):
    return (images[:, None].float() * (1 / 255)).contiguous(memory_format=torch.channels_last)


class Training:
    def __init__(self, images, labels, batch, math):
        torch.manual_seed(0)
        self.images, self.labels, self.math = images, labels, math
        self.net = Net().cuda().to(memory_format=torch.channels_last)
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-3, fused=True, capturable=True)
        self.rows = torch.zeros(batch, dtype=torch.long, device='cuda')
        self.graph = None

    def logits(self, images):
        with torch.autocast('cuda', torch.bfloat16, enabled=self.math == 'bf16', cache_enabled=False):
            return self.net(as_input(images)).float()

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(self.logits(self.images[self.rows]), self.labels[self.rows]).backward()
        self.optimizer.step()

    def capture(self):
        """Captures as PyTorch's manual describes: warms up on a side stream, then captures."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.step()
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.step()

    def epoch(self):
        """Microseconds per step."""
        batch = len(self.rows)
        steps = len(self.images) // batch
        torch.cuda.synchronize()
        start = time.perf_counter()
        order = torch.randperm(len(self.images), device='cuda')
        for k in range(steps):
            rows = order[k * batch:(k + 1) * batch]
            if self.graph is None:
                self.rows = rows
                self.step()
            else:
                self.rows.copy_(rows)
                self.graph.replay()
        torch.cuda.synchronize()
        return (time.perf_counter() - start) / steps * 1e6

    def accuracy(self, images, labels):
        with torch.no_grad():
            right = sum((self.logits(images[i:i + 1000]).argmax(1) == labels[i:i + 1000]).sum().item()
                        for i in range(0, len(images), 1000))
        return right / len(images)


def main():
    folder, mode, math, epochs = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = math == 'tf32'
    torch.backends.cudnn.benchmark = True
    images, labels = on_gpu(folder, 'train')
    test_images, test_labels = on_gpu(folder, 't10k')
    for batch in map(int, sys.argv[5:]):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        training = Training(images, labels, batch, math)
        for _ in range(5):
            training.step()
        if mode == 'graph':
            training.capture()
        times = [training.epoch() for _ in range(epochs)]
        peak = torch.cuda.max_memory_reserved()
        mnist.report(f'PyTorch {torch.__version__.split("+")[0]} {mode}', math, batch, statistics.median(times), peak,
                     training.accuracy(test_images, test_labels))


if __name__ == '__main__':
    main()
