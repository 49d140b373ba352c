"""Land-use classification, data parallel, with the batch raised in place of a falling learning rate (Smith et al.)."""
import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
import torchvision
from torch.nn.parallel import DistributedDataParallel as DDP


class Tiles:
    """A pool of tiles that batches are drawn from."""

    def __init__(self, pool, size, classes, seed):
        self.gen = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(classes, (pool,), generator=self.gen)
        tint = torch.rand(classes, 3, 1, 1, generator=self.gen)
        noise = torch.rand(pool, 3, size // 4, size // 4, generator=self.gen)
        self.images = F.interpolate(noise, size=(size, size)) * 0.5 + tint[self.labels]

    def draw(self, count):
        index = torch.randint(len(self.labels), (count,), generator=self.gen)
        return self.images[index], self.labels[index]


class BatchSchedule:
    """Noise scale is lr / batch: keep the rate, raise the batch."""

    def __init__(self, start, every, factor):
        self.size, self.every, self.factor = start, every, factor
        self.steps = 0

    def step(self):
        self.steps += 1
        if self.steps % self.every == 0:
            self.size = int(self.size * self.factor)  # HERE
            return True
        return False


def setup():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if not torch.cuda.is_available():
        return rank, torch.device("cpu")
    local = int(os.environ.get("LOCAL_RANK", rank))
    device = torch.device("cuda", local % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return rank, device


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--start-batch", type=int, default=24)
    parser.add_argument("--grow-every", type=int, default=8)
    parser.add_argument("--factor", type=float, default=1.6)
    parser.add_argument("--steps", type=int, default=400)
    args = parser.parse_args()
    rank, device = setup()
    torch.manual_seed(0)

    model = torchvision.models.resnet18(weights=None, num_classes=args.classes).to(device)
    model = DDP(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
    tiles = Tiles(256, args.size, args.classes, seed=rank)
    schedule = BatchSchedule(args.start_batch, args.grow_every, args.factor)
    for step in range(args.steps):
        image, label = tiles.draw(schedule.size)
        logits = model(image.to(device))
        loss = F.cross_entropy(logits, label.to(device))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if schedule.step() and rank == 0:
            print(f"step {step} loss {loss.item():.3f} next batch {schedule.size}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
