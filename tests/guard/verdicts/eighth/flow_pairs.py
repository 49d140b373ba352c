"""Small all-pairs optical flow network (RAFT style), trained on random crops, validated on full frames."""
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Encoder(nn.Module):
    def __init__(self, dim=128):
        super().__init__()
        chans = [3, 32, 64, dim]
        layers = []
        for a, b in zip(chans[:-1], chans[1:]):
            layers += [nn.Conv2d(a, b, 3, stride=2, padding=1), nn.InstanceNorm2d(b), nn.ReLU(inplace=True)]
        layers.append(nn.Conv2d(dim, dim, 1))
        self.net = nn.Sequential(*layers)

    def forward(self, x):
        return self.net(x)


def correlation(f1, f2):
    b, c, h, w = f1.shape
    f1 = f1.flatten(2).transpose(1, 2)
    f2 = f2.flatten(2)
    corr = torch.matmul(f1, f2) / math.sqrt(c)  # HERE
    return corr.view(b, h * w, h, w)


def soft_argmax_flow(corr, h, w):
    """Expected displacement under the matching distribution."""
    b = corr.shape[0]
    prob = corr.view(b, h * w, h * w).softmax(dim=-1)
    ys, xs = torch.meshgrid(
        torch.arange(h, device=corr.device, dtype=corr.dtype),
        torch.arange(w, device=corr.device, dtype=corr.dtype), indexing="ij")
    grid = torch.stack([xs, ys], dim=-1).view(h * w, 2)
    return (prob @ grid - grid).transpose(1, 2).view(b, 2, h, w)


class FlowNet(nn.Module):
    def __init__(self, dim=128):
        super().__init__()
        self.fnet = Encoder(dim)
        self.refine = nn.Sequential(nn.Conv2d(2 + dim, 96, 3, padding=1), nn.ReLU(inplace=True),
                                    nn.Conv2d(96, 2, 3, padding=1))

    def forward(self, im1, im2):
        f1, f2 = self.fnet(im1), self.fnet(im2)
        h, w = f1.shape[-2:]
        flow = soft_argmax_flow(correlation(f1, f2), h, w)
        flow = flow + self.refine(torch.cat([flow, f1], 1))
        return 8 * F.interpolate(flow, scale_factor=8, mode="bilinear", align_corners=False)


def make_pair(b, h, w, device):
    im1 = F.interpolate(torch.rand(b, 3, h // 8, w // 8, device=device), size=(h, w), mode="bicubic")
    dx, dy = torch.randint(-16, 17, (2,)).tolist()
    im2 = torch.roll(im1, shifts=(dy, dx), dims=(2, 3))
    gt = torch.tensor([dx, dy], device=device, dtype=torch.float32).view(1, 2, 1, 1).expand(b, 2, h, w)
    return im1, im2, gt


@torch.no_grad()
def validate(model, frames, size, device):
    model.eval()
    epe = []
    for _ in range(frames):
        im1, im2, gt = make_pair(1, *size, device)
        pred = model(im1, im2)
        epe.append((pred - gt).norm(dim=1).mean().item())
    model.train()
    return sum(epe) / len(epe)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=1000)
    ap.add_argument("--batch", type=int, default=4)
    ap.add_argument("--crop", type=int, nargs=2, default=[256, 320])
    ap.add_argument("--val-size", type=int, nargs=2, default=[1536, 2048])
    ap.add_argument("--val-every", type=int, default=150)
    args = ap.parse_args()
    device = torch.device("cuda")
    model = FlowNet().to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-4)
    for step in range(1, args.steps + 1):
        im1, im2, gt = make_pair(args.batch, *args.crop, device)
        loss = (model(im1, im2) - gt).abs().mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 50 == 0:
            print(f"[{step}] l1={loss.item():.3f}")
        if step % args.val_every == 0:
            print(f"[{step}] val EPE {validate(model, 10, args.val_size, device):.3f}")


if __name__ == "__main__":
    main()
