"""Train a ResNet from a uint8 memmap; a thread moves batches to the card ahead of time."""
import os
import queue
import tempfile
import threading
import time

import numpy as np
import timm
import torch
import torch.nn.functional as F

SIZE, BATCH = 192, 32


def write_shard(path, n=1024):
    data = np.memmap(path, dtype=np.uint8, mode="w+", shape=(n, 3, SIZE, SIZE))
    rng = np.random.default_rng(0)
    for i in range(0, n, 128):
        data[i:i + 128] = rng.integers(0, 256, (128, 3, SIZE, SIZE), dtype=np.uint8)
    data.flush()
    return n


class DevicePrefetcher:
    """Iterate over normalised float batches which are already on the device."""

    def __init__(self, path, n, batch, epochs, device="cuda"):
        self.images = np.memmap(path, dtype=np.uint8, mode="r", shape=(n, 3, SIZE, SIZE))
        self.n, self.batch, self.epochs, self.device = n, batch, epochs, device
        self.mean = torch.tensor([0.485, 0.456, 0.406], device=device).view(1, 3, 1, 1)
        self.std = torch.tensor([0.229, 0.224, 0.225], device=device).view(1, 3, 1, 1)
        self.stream = torch.cuda.Stream()
        self.ready = queue.Queue()  # HERE
        self.thread = threading.Thread(target=self._fill, daemon=True)
        self.thread.start()

    def _load(self, start):
        raw = torch.from_numpy(np.array(self.images[start:start + self.batch])).pin_memory()
        with torch.cuda.stream(self.stream):
            x = raw.to(self.device, non_blocking=True).float().div_(255)
            x.sub_(self.mean).div_(self.std)
        self.stream.synchronize()
        return x

    def _fill(self):
        for epoch in range(self.epochs):
            for start in range(0, self.n - self.batch + 1, self.batch):
                y = torch.arange(start, start + self.batch) % 100
                self.ready.put((self._load(start), y))  # HERE
        self.ready.put(None)

    def __iter__(self):
        while (item := self.ready.get()) is not None:
            yield item


def main():
    path = os.path.join(tempfile.mkdtemp(), "train.u8")
    n = write_shard(path)
    model = timm.create_model("resnet50", pretrained=False, num_classes=100).cuda()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
    start = time.time()
    for step, (x, y) in enumerate(DevicePrefetcher(path, n, BATCH, epochs=30)):
        loss = F.cross_entropy(model(x), y.cuda(), label_smoothing=0.1)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if step % 10 == 0:
            rate = (step + 1) * BATCH / (time.time() - start)
            print(f"step {step} loss {loss.item():.3f} {rate:.0f} img/s", flush=True)


if __name__ == "__main__":
    main()
