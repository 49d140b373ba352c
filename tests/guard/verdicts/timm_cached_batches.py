"""Train a timm ResNet-18 on generated stripes; uint8 batches are prepared on the GPU."""
import argparse
from functools import lru_cache

import timm
import torch
from torch import nn

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Stripes:
    """uint8 images, the class is the width of the stripes."""

    def __init__(self, size, classes, seed):
        self.size, self.classes = size, classes
        self.gen = torch.Generator().manual_seed(seed)

    def batch(self, count):
        labels = torch.randint(0, self.classes, (count,), generator=self.gen)
        columns = torch.arange(self.size).view(1, 1, 1, -1) // (2 + labels.view(-1, 1, 1, 1))
        images = torch.randint(0, 128, (count, 3, self.size, self.size), generator=self.gen, dtype=torch.uint8)
        return images + (columns % 2 * 100).to(torch.uint8), labels


@lru_cache(maxsize=None)  # HERE
def prepare(images):
    """Both the loss and the accuracy need the prepared batch, so do the work once."""
    mean = torch.tensor(MEAN, device=images.device).view(1, 3, 1, 1)
    std = torch.tensor(STD, device=images.device).view(1, 3, 1, 1)
    return (images.float() / 255 - mean) / std


class Average:
    def __init__(self):
        self.value, self.count = 0.0, 0

    def add(self, value):
        self.count += 1
        self.value += (value - self.value) / self.count


class Trainer:
    def __init__(self, model, device, rate):
        self.model, self.device = model, device
        self.criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9, weight_decay=1e-4)
        self.loss, self.accuracy = Average(), Average()

    def loss_of(self, images, labels):
        return self.criterion(self.model(prepare(images)), labels)

    @torch.no_grad()
    def accuracy_of(self, images, labels):
        self.model.eval()
        correct = (self.model(prepare(images)).argmax(1) == labels).float().mean().item()
        self.model.train()
        return correct

    def step(self, images, labels):
        images, labels = images.to(self.device), labels.to(self.device)
        loss = self.loss_of(images, labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.loss.add(loss.item())
        self.accuracy.add(self.accuracy_of(images, labels))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--size", type=int, default=160)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=2000)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = timm.create_model(args.model, pretrained=False, num_classes=8).to(device)
    trainer = Trainer(model, device, rate=0.02)
    data = Stripes(args.size, 8, seed=5)
    for step in range(args.steps):
        trainer.step(*data.batch(args.batch))
        if step % 10 == 0:
            print(f"step {step} loss {trainer.loss.value:.4f} accuracy {trainer.accuracy.value:.3f}", flush=True)


if __name__ == "__main__":
    main()
