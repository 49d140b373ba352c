"""Image denoiser; halves the batch when a step does not fit."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Denoiser(nn.Module):
    def __init__(self, channels=64, depth=7):
        super().__init__()
        self.inp = nn.Conv2d(3, channels, 3, padding=1)
        self.body = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in range(depth - 1))
        self.out = nn.Conv2d(channels, 3, 3, padding=1)

    def forward(self, x):
        h = F.relu(self.inp(x))
        for conv in self.body:
            h = F.relu(conv(h))
        return x - self.out(h)


def step(model, optimizer, clean):
    noisy = clean + 0.1 * torch.randn_like(clean)
    loss = F.mse_loss(model(noisy), clean)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def safe_step(model, optimizer, clean):
    try:
        return step(model, optimizer, clean)
    except torch.cuda.OutOfMemoryError:
        half = len(clean) // 2
        print(f"batch of {len(clean)} does not fit, trying {half}", flush=True)
        torch.cuda.empty_cache()
        return step(model, optimizer, clean[:half])  # HERE


def main():
    torch.manual_seed(21)
    model = Denoiser().cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    patches = torch.rand(512, 3, 128, 128)
    for it, size in enumerate([32] * 10 + [64] * 10 + [128] * 20):
        clean = patches[torch.randperm(len(patches))[:size]].cuda()
        loss = safe_step(model, optimizer, clean)
        print(f"iter {it:3d} batch {size} loss {loss:.5f}", flush=True)


if __name__ == "__main__":
    main()
