import argparse

import torch
import torch.nn as nn
from torchvision.models import resnet18


def batches(n, batch_size, device):
    images = torch.randn(batch_size, 3, 224, 224, device=device)
    for i in range(n):
        g = torch.Generator().manual_seed(i)
        labels = torch.randint(0, 100, (batch_size,), generator=g).to(device)
        yield images.roll(i, dims=0), labels


def train_epoch(model, opt, criterion, args, device):
    model.train()
    for i, (x, y) in enumerate(batches(args.train_batches, args.batch_size, device)):
        opt.zero_grad(set_to_none=True)
        loss = criterion(model(x), y)
        loss.backward()
        opt.step()
        if i % 5 == 0:
            print(f"  batch {i} loss {loss.item():.3f}", flush=True)


def validate(model, criterion, args, device):
    model.eval()
    val_loss, correct, seen = 0, 0, 0
    for x, y in batches(args.val_batches, args.batch_size, device):
        logits = model(x)
        val_loss += criterion(logits, y)  # HERE
        correct += (logits.argmax(1) == y).sum().item()
        seen += len(y)
        print(f"  validated {seen}", flush=True)
    return val_loss / args.val_batches, correct / seen


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--train-batches", type=int, default=12)
    p.add_argument("--val-batches", type=int, default=30)
    args = p.parse_args()

    device = torch.device("cuda")
    model = resnet18(num_classes=100).to(device)
    opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(args.epochs):
        print(f"epoch {epoch}")
        train_epoch(model, opt, criterion, args, device)
        loss, acc = validate(model, criterion, args, device)
        print(f"epoch {epoch}: val loss {loss:.3f} acc {acc:.3f}")


if __name__ == "__main__":
    main()
