import time
from dataclasses import dataclass

import timm
import torch
import torch.nn as nn


@dataclass
class Config:
    arch: str = "vit_small_patch16_224"
    classes: int = 100
    train_batch: int = 32
    eval_batch: int = 16
    train_steps: int = 12
    eval_batches: int = 60


def batches(n, size, classes, seed):
    gen = torch.Generator().manual_seed(seed)
    for _ in range(n):
        yield torch.randn(size, 3, 224, 224, generator=gen), torch.randint(0, classes, (size,), generator=gen)


def train_one_epoch(model, cfg, criterion, optimizer):
    model.train()
    for i, (x, y) in enumerate(batches(cfg.train_steps, cfg.train_batch, cfg.classes, seed=1)):
        loss = criterion(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"  train {i:3d} loss {loss.item():.4f}", flush=True)


def validate(model, cfg, criterion):
    model.eval()
    val_loss, correct, seen = 0.0, 0, 0
    for x, y in batches(cfg.eval_batches, cfg.eval_batch, cfg.classes, seed=2):
        x, y = x.cuda(), y.cuda()
        logits = model(x)
        val_loss = val_loss + criterion(logits, y)  # HERE
        correct += (logits.argmax(1) == y).sum().item()
        seen += y.numel()
    return float(val_loss) / cfg.eval_batches, correct / seen


def main():
    torch.manual_seed(0)
    cfg = Config()
    model = timm.create_model(cfg.arch, pretrained=False, num_classes=cfg.classes).cuda()
    criterion, optimizer = nn.CrossEntropyLoss(), torch.optim.AdamW(model.parameters(), lr=3e-4)
    for epoch in range(3):
        t0 = time.time()
        train_one_epoch(model, cfg, criterion, optimizer)
        loss, acc = validate(model, cfg, criterion)
        print(f"epoch {epoch} val_loss {loss:.4f} acc {acc:.3f} ({time.time() - t0:.1f}s)")


if __name__ == "__main__":
    main()
