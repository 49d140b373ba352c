import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from torch.utils.data import DataLoader, Dataset

CLASSES, SIZE = 150, 1024


class Scenes(Dataset):
    def __len__(self):
        return 800

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        layout = torch.randint(0, CLASSES, (16, 16), generator=g)
        mask = layout.repeat_interleave(SIZE // 16, 0).repeat_interleave(SIZE // 16, 1)
        img = torch.stack([(mask * k % 256) / 255.0 for k in (1, 7, 31)])
        return img + 0.05 * torch.randn(img.shape, generator=g), mask


class LightSeg(nn.Module):
    """Patch-embedding encoder with an all-MLP decoder that predicts at stride 4."""

    def __init__(self, w=48):
        super().__init__()
        self.s4 = nn.Sequential(nn.Conv2d(3, w, 7, 4, 3), nn.BatchNorm2d(w), nn.ReLU())
        self.s8 = nn.Sequential(nn.Conv2d(w, 2 * w, 3, 2, 1), nn.BatchNorm2d(2 * w), nn.ReLU())
        self.s16 = nn.Sequential(nn.Conv2d(2 * w, 4 * w, 3, 2, 1), nn.BatchNorm2d(4 * w), nn.ReLU())
        self.p8, self.p16 = nn.Conv2d(2 * w, w, 1), nn.Conv2d(4 * w, w, 1)
        self.cls = nn.Conv2d(w, CLASSES, 1)

    def forward(self, x):
        a = self.s4(x)
        b = self.s8(a)
        c = self.s16(b)
        a = a + F.interpolate(self.p8(b), a.shape[-2:]) + F.interpolate(self.p16(c), a.shape[-2:])
        return self.cls(a)


def main():
    accelerator = Accelerator()
    model = LightSeg()
    opt = torch.optim.AdamW(model.parameters(), lr=6e-4)
    model, opt, loader = accelerator.prepare(
        model, opt, DataLoader(Scenes(), batch_size=8, shuffle=True))
    for epoch in range(4):
        for step, (img, mask) in enumerate(loader):
            logits = model(img)
            logits = F.interpolate(logits, size=mask.shape[-2:], mode="bilinear", align_corners=False)  # HERE
            loss = F.cross_entropy(logits, mask)
            accelerator.backward(loss)
            opt.step()
            opt.zero_grad()
            if step % 10 == 0:
                acc = (logits.argmax(1) == mask).float().mean().item()
                accelerator.print(f"epoch {epoch} step {step} loss {loss.item():.3f} acc {acc:.3f}", flush=True)


if __name__ == "__main__":
    main()
