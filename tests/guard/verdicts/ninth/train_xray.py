"""Bone age from hand radiographs; radiographs whose reading is missing are reported at the end."""
import argparse

import torch
from torch import nn


class Radiographs:
    """Batches of synthetic radiographs and ages; some readings were never entered."""

    def __init__(self, batches, batch, size, missing):
        self.batches, self.batch, self.size, self.missing = batches, batch, size, missing

    def __iter__(self):
        for number in range(self.batches):
            gen = torch.Generator().manual_seed(number)
            age = 18 * torch.rand(self.batch, generator=gen)
            image = torch.rand(self.batch, 1, self.size // 8, self.size // 8, generator=gen)
            image = nn.functional.interpolate(image, scale_factor=8) + age[:, None, None, None] / 18
            if torch.rand((), generator=gen) < self.missing:
                age[torch.randint(self.batch, (1,), generator=gen)] = float("nan")
            yield image, age


class BoneAge(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        def stage(cin, cout, stride):
            return nn.Sequential(
                nn.Conv2d(cin, cout, 3, stride, 1), nn.BatchNorm2d(cout), nn.ReLU(),
                nn.Conv2d(cout, cout, 3, 1, 1), nn.BatchNorm2d(cout), nn.ReLU(),
            )
        self.stages = nn.Sequential(stage(1, width, 2), stage(width, 2 * width, 2), stage(2 * width, 4 * width, 2))
        self.head = nn.Linear(4 * width, 1)

    def forward(self, image):
        return self.head(self.stages(image).mean((2, 3))).squeeze(1) * 18


class Trainer:
    def __init__(self, lr, device):
        self.device = device
        self.model = BoneAge().to(device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=lr)
        self.skipped = []

    def train_step(self, image, age):
        image, age = image.to(self.device), age.to(self.device)
        predicted = self.model(image)
        loss = (predicted - age).abs().mean()
        if not torch.isfinite(loss):
            rows = torch.isnan(age).nonzero().flatten().tolist()
            raise ValueError(f"no reading in rows {rows}")
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def fit(self, data):
        total, used = 0.0, 0
        for number, (image, age) in enumerate(data):
            try:
                total += self.train_step(image, age)
                used += 1
            except ValueError as problem:
                self.skipped.append((number, problem))  # HERE
            if number % 10 == 0:
                print(f"batch {number} error {total / max(used, 1):.2f} years", flush=True)

    def report(self):
        for number, problem in self.skipped:
            print(f"batch {number} skipped: {problem}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batches", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=12)
    parser.add_argument("--size", type=int, default=384)
    parser.add_argument("--missing", type=float, default=0.2)
    args = parser.parse_args()
    torch.manual_seed(0)
    trainer = Trainer(1e-3, "cuda" if torch.cuda.is_available() else "cpu")
    trainer.fit(Radiographs(args.batches, args.batch, args.size, args.missing))
    trainer.report()


if __name__ == "__main__":
    main()
