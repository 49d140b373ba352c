"""x4 super-resolution, PSNR-oriented warm start for the GAN stage.

Trains an EDSR-style generator with L1 only; the perceptual distance is
reported so that we know when to switch to the adversarial stage.
"""
import argparse
import time
from collections import defaultdict

import torch
import torch.nn as nn
import torch.nn.functional as F


class ResBlock(nn.Module):
    def __init__(self, n_feats, res_scale=0.1):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(n_feats, n_feats, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(n_feats, n_feats, 3, padding=1),
        )
        self.res_scale = res_scale

    def forward(self, x):
        return x + self.body(x) * self.res_scale


class Generator(nn.Module):
    def __init__(self, n_feats=64, n_blocks=8):
        super().__init__()
        self.head = nn.Conv2d(3, n_feats, 3, padding=1)
        self.body = nn.Sequential(*[ResBlock(n_feats) for _ in range(n_blocks)])
        self.up = nn.Sequential(
            nn.Conv2d(n_feats, n_feats * 4, 3, padding=1), nn.PixelShuffle(2),
            nn.Conv2d(n_feats, n_feats * 4, 3, padding=1), nn.PixelShuffle(2),
        )
        self.tail = nn.Conv2d(n_feats, 3, 3, padding=1)

    def forward(self, x):
        x = self.head(x)
        x = x + self.body(x)
        return self.tail(self.up(x))


class VGGFeatures(nn.Module):
    """Frozen VGG trunk up to relu3_3."""

    cfg = (64, 64, "M", 128, 128, "M", 256, 256, 256)

    def __init__(self):
        super().__init__()
        layers, c = [], 3
        for v in self.cfg:
            if v == "M":
                layers.append(nn.MaxPool2d(2))
            else:
                layers += [nn.Conv2d(c, v, 3, padding=1), nn.ReLU(inplace=True)]
                c = v
        self.features = nn.Sequential(*layers)
        for p in self.parameters():
            p.requires_grad_(False)

    def forward(self, sr, hr):
        return F.l1_loss(self.features(sr), self.features(hr))


def make_batch(n, hr_size, device):
    base = torch.rand(n, 3, hr_size // 8, hr_size // 8, device=device)
    hr = F.interpolate(base, size=hr_size, mode="bicubic", align_corners=False)
    hr = (hr + 0.03 * torch.randn_like(hr)).clamp_(0, 1)
    lr = F.interpolate(hr, scale_factor=0.25, mode="area")
    return lr, hr


def psnr(a, b):
    return (-10 * torch.log10(F.mse_loss(a, b))).item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=4000)
    ap.add_argument("--batch-size", type=int, default=16)
    ap.add_argument("--hr-size", type=int, default=128)
    ap.add_argument("--lr", type=float, default=2e-4)
    ap.add_argument("--log-every", type=int, default=10)
    ap.add_argument("--summary-every", type=int, default=500)
    args = ap.parse_args()

    device = torch.device("cuda")
    torch.manual_seed(7)
    net_g = Generator().to(device)
    vgg = VGGFeatures().to(device).eval()
    opt = torch.optim.Adam(net_g.parameters(), lr=args.lr, betas=(0.9, 0.99))
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, args.steps)

    history = defaultdict(list)
    t0 = time.time()
    for step in range(1, args.steps + 1):
        lr_img, hr_img = make_batch(args.batch_size, args.hr_size, device)
        sr = net_g(lr_img)
        l_pix = F.l1_loss(sr, hr_img)

        opt.zero_grad(set_to_none=True)
        l_pix.backward()
        opt.step()
        sched.step()

        if step % args.log_every == 0:
            history["l_pix"].append(l_pix.item())
            history["psnr"].append(psnr(sr, hr_img))
            history["l_percep"].append(vgg(sr, hr_img))  # HERE
            print(f"[{step:5d}] pix {history['l_pix'][-1]:.4f} "
                  f"psnr {history['psnr'][-1]:.2f} "
                  f"percep {history['l_percep'][-1].item():.4f} "
                  f"({step / (time.time() - t0):.1f} it/s)")
        if step % args.summary_every == 0:
            mean = {k: sum(float(x) for x in v[-50:]) / 50 for k, v in history.items()}
            print("summary", mean)


if __name__ == "__main__":
    main()
