"""Linear probing of a self-supervised ViT on plant disease photos."""
import argparse
import time

import timm
import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator


class ProbeHead(nn.Module):
    def __init__(self, dim, classes):
        super().__init__()
        self.norm = nn.BatchNorm1d(dim, affine=False)
        self.fc = nn.Linear(dim, classes)
        nn.init.zeros_(self.fc.weight)
        nn.init.zeros_(self.fc.bias)

    def forward(self, x):
        return self.fc(self.norm(x))


class PhotoStream:
    """Colour-jittered crops produced on the accelerator."""

    def __init__(self, batches, batch_size, size, classes, device):
        self.batches, self.batch_size, self.size = batches, batch_size, size
        self.classes, self.device = classes, device

    def __iter__(self):
        for _ in range(self.batches):
            y = torch.randint(0, self.classes, (self.batch_size,), device=self.device)
            tint = torch.stack([(y % 3), (y % 5), (y % 7)], 1).float().view(-1, 3, 1, 1) / 7
            x = torch.rand(self.batch_size, 3, self.size, self.size, device=self.device)
            yield (x + tint - 0.7) / 0.5, y


def load_encoder(name, checkpoint):
    encoder = timm.create_model(name, pretrained=False, num_classes=0)
    if checkpoint:
        state = torch.load(checkpoint, map_location="cpu", weights_only=True)
        encoder.load_state_dict(state, strict=False)
    return encoder


def accuracy(logits, y, topk=(1, 5)):
    order = logits.topk(max(topk), dim=1).indices == y[:, None]
    return [order[:, :k].any(1).float().mean().item() for k in topk]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--arch", default="vit_small_patch16_224")
    ap.add_argument("--checkpoint")
    ap.add_argument("--classes", type=int, default=38)
    ap.add_argument("--batch-size", type=int, default=160)
    ap.add_argument("--batches", type=int, default=200)
    ap.add_argument("--epochs", type=int, default=10)
    ap.add_argument("--lr", type=float, default=0.1)
    args = ap.parse_args()

    accelerator = Accelerator()
    device = accelerator.device
    encoder = load_encoder(args.arch, args.checkpoint).to(device)
    encoder.eval()
    head = ProbeHead(encoder.num_features, args.classes)
    optimizer = torch.optim.SGD(head.parameters(), lr=args.lr, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * args.batches)
    head, optimizer, scheduler = accelerator.prepare(head, optimizer, scheduler)

    for epoch in range(args.epochs):
        t0, top1, top5 = time.time(), 0.0, 0.0
        stream = PhotoStream(args.batches, args.batch_size, 224, args.classes, device)
        for i, (x, y) in enumerate(stream, 1):
            feats = encoder(x)  # HERE
            logits = head(feats)
            loss = F.cross_entropy(logits, y)
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            a1, a5 = accuracy(logits.detach(), y)
            top1, top5 = top1 + a1, top5 + a5
            if i % 20 == 0:
                accelerator.print(f"{epoch}/{i} loss {loss.item():.3f} acc@1 {top1 / i:.3f} acc@5 {top5 / i:.3f}")
        accelerator.print(f"epoch {epoch} took {time.time() - t0:.1f}s")


if __name__ == "__main__":
    main()
