"""Terrain classes from aerial tiles; a thread keeps the GPU supplied with batches."""
import argparse
import queue
import threading
import time

import torch
import torch.nn.functional as F
import torchvision


class TilePool:
    """Tiles in memory as bytes; a batch is a random choice of them."""

    def __init__(self, count, size, classes, seed=0):
        self.gen = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(classes, (count,), generator=self.gen)
        tiles = torch.randint(128, (count, 3, size, size), generator=self.gen, dtype=torch.uint8)
        self.tiles = tiles + (self.labels * (127 // classes)).to(torch.uint8)[:, None, None, None]

    def batch(self, size):
        index = torch.randint(len(self.labels), (size,), generator=self.gen)
        return self.tiles[index], self.labels[index]


class Supplier:
    """Copies batches to the device on a stream of its own, ahead of their use."""

    def __init__(self, pool, batch, batches, device):
        self.pool, self.batch, self.batches, self.device = pool, batch, batches, device
        self.stream = torch.cuda.Stream() if device.type == "cuda" else None
        self.ready = queue.Queue()
        self.thread = threading.Thread(target=self.fill, daemon=True)
        self.thread.start()

    def fill(self):
        try:
            for _ in range(self.batches):
                tiles, labels = self.pool.batch(self.batch)
                with torch.cuda.stream(self.stream):
                    tiles = tiles.to(self.device).float().div_(255)
                    self.ready.put((tiles, labels.to(self.device)))  # HERE
            self.ready.put(None)
        except Exception as problem:
            self.ready.put(problem)

    def __iter__(self):
        while (item := self.ready.get()) is not None:
            if isinstance(item, Exception):
                raise item
            if self.stream:
                torch.cuda.current_stream().wait_stream(self.stream)
            yield item


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=160)
    parser.add_argument("--classes", type=int, default=12)
    parser.add_argument("--batch", type=int, default=48)
    parser.add_argument("--batches", type=int, default=5000)
    parser.add_argument("--pool", type=int, default=2000)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = torchvision.models.resnet50(weights=None, num_classes=args.classes).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    supplier = Supplier(TilePool(args.pool, args.size, args.classes), args.batch, args.batches, device)
    start, total, correct = time.time(), 0, 0
    for step, (tiles, labels) in enumerate(supplier):
        logits = model(tiles)
        loss = F.cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        correct += (logits.argmax(1) == labels).sum().item()
        total += len(labels)
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.3f} accuracy {correct / total:.2f} "
                  f"{total / (time.time() - start):.0f} tiles/s", flush=True)


if __name__ == "__main__":
    main()
