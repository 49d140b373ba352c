"""Clip classification with a background prefetcher and data echoing.

Decoding is the slow part on our cluster, so every clip batch is reused
`--echo` times with a fresh augmentation before the next one is fetched.
"""
import argparse
import queue
import threading
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class ClipStore:
    """Pre-decoded clips in host memory."""

    def __init__(self, n=48, frames=16, size=112, n_cls=101, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.clips = torch.rand(n, 3, frames, size, size, generator=g)
        self.labels = torch.randint(n_cls, (n,), generator=g)
        self.g = g

    def epoch(self, batch_size, length):
        for _ in range(length):
            idx = torch.randint(len(self.clips), (batch_size,), generator=self.g)
            yield self.clips[idx], self.labels[idx]


class BackgroundPrefetcher(threading.Thread):
    _END = object()

    def __init__(self, iterable, device):
        super().__init__(daemon=True)
        self.iterable = iterable
        self.device = device
        self.stream = torch.cuda.Stream(device)
        self.queue = queue.Queue()
        self.error = None
        self.start()

    def run(self):
        try:
            for clip, label in self.iterable:
                with torch.cuda.stream(self.stream):
                    item = (clip.to(self.device, non_blocking=True), label.to(self.device))
                self.stream.synchronize()
                self.queue.put(item)  # HERE
        except BaseException as e:
            self.error = e
        self.queue.put(self._END)

    def __iter__(self):
        return self

    def __next__(self):
        if self.error is not None:
            raise self.error
        item = self.queue.get()
        if item is self._END:
            if self.error is not None:
                raise self.error
            raise StopIteration
        for t in item:
            t.record_stream(torch.cuda.current_stream())
        return item


def conv3d(i, o, stride=1):
    return nn.Sequential(nn.Conv3d(i, o, 3, stride, 1, bias=False),
                         nn.BatchNorm3d(o), nn.ReLU(inplace=True))


class R3DMini(nn.Module):
    def __init__(self, n_cls, w=48):
        super().__init__()
        self.stem = conv3d(3, w, (1, 2, 2))
        self.s1 = nn.Sequential(conv3d(w, w), conv3d(w, w))
        self.s2 = nn.Sequential(conv3d(w, 2 * w, 2), conv3d(2 * w, 2 * w))
        self.s3 = nn.Sequential(conv3d(2 * w, 4 * w, 2), conv3d(4 * w, 4 * w))
        self.fc = nn.Linear(4 * w, n_cls)

    def forward(self, x):
        x = self.s3(self.s2(self.s1(self.stem(x))))
        return self.fc(x.mean((2, 3, 4)))


def augment(clip):
    if torch.rand(()) < 0.5:
        clip = clip.flip(-1)
    dx, dy = (int(v) for v in torch.randint(0, 9, (2,)))
    clip = clip[..., dy:dy + 104, dx:dx + 104]
    gain = 1 + 0.2 * torch.randn(clip.size(0), 1, 1, 1, 1, device=clip.device)
    return clip * gain


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--batch-size", type=int, default=8)
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--epoch-len", type=int, default=1500)
    ap.add_argument("--echo", type=int, default=12)
    ap.add_argument("--lr", type=float, default=0.01)
    args = ap.parse_args()

    torch.manual_seed(0)
    device = torch.device("cuda")
    store = ClipStore()
    model = R3DMini(101).to(device)
    opt = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
    for epoch in range(args.epochs):
        t0, seen = time.time(), 0
        loader = BackgroundPrefetcher(store.epoch(args.batch_size, args.epoch_len), device)
        for i, (clip, label) in enumerate(loader):
            for _ in range(args.echo):
                loss = F.cross_entropy(model(augment(clip)), label)
                opt.zero_grad(set_to_none=True)
                loss.backward()
                opt.step()
            seen += label.numel()
            if i % 5 == 0:
                print(f"epoch {epoch} batch {i} loss {loss.item():.3f} "
                      f"{seen / (time.time() - t0):.1f} clips/s", flush=True)


if __name__ == "__main__":
    main()
