"""
Deconvolution of a light-sheet volume by L-BFGS.

The unknown is the volume itself; the forward model is a separable Gaussian
point-spread function, the prior a smoothed total variation.  Full-batch, one
L-BFGS iteration per log line.
"""
import math
import time

import torch
import torch.nn.functional as F

torch.manual_seed(1234)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

SIDE = 224
SIGMA_XY, SIGMA_Z = 1.5, 3.0
NOISE = 0.02
TV_WEIGHT = 2e-3
ITERATIONS = 400


def gaussian(sigma):
    radius = int(math.ceil(3 * sigma))
    x = torch.arange(-radius, radius + 1, dtype=torch.float32, device=device)
    k = torch.exp(-0.5 * (x / sigma) ** 2)
    return k / k.sum()


K_XY, K_Z = gaussian(SIGMA_XY), gaussian(SIGMA_Z)


def blur_axis(vol, kernel, axis):
    """Convolve a (D, H, W) volume with a 1-D kernel along one axis."""
    v = vol.movedim(axis, -1)
    flat = v.reshape(-1, 1, v.shape[-1])
    out = F.conv1d(flat, kernel.view(1, 1, -1), padding=len(kernel) // 2)
    return out.reshape(v.shape).movedim(-1, axis)


def psf(vol):
    vol = blur_axis(vol, K_Z, 0)
    vol = blur_axis(vol, K_XY, 1)
    return blur_axis(vol, K_XY, 2)


def total_variation(vol, eps=1e-3):
    tv = 0.0
    for axis in range(3):
        d = torch.diff(vol, dim=axis)
        tv = tv + torch.sqrt(d * d + eps).sum()
    return tv


def phantom(side, beads=400):
    """Bright beads and a few tubes on a dark background."""
    vol = torch.zeros(side, side, side, device=device)
    pos = torch.randint(4, side - 4, (beads, 3))
    for z, y, x in pos.tolist():
        vol[z - 1:z + 2, y - 1:y + 2, x - 1:x + 2] = 0.5 + 0.5 * torch.rand(()).item()
    for _ in range(12):
        y, x = torch.randint(4, side - 4, (2,)).tolist()
        vol[:, y - 2:y + 2, x - 2:x + 2] = 0.7
    return vol


truth = phantom(SIDE)
with torch.no_grad():
    measured = psf(truth)
    measured += NOISE * torch.randn_like(measured)
truth = truth.cpu()

estimate = measured.clone().requires_grad_()
print(f"{estimate.numel() / 1e6:.1f} M voxels on {device}")

optimizer = torch.optim.LBFGS(
    [estimate],
    lr=0.8,
    max_iter=1,
    history_size=150,  # HERE
    tolerance_grad=1e-9,
    tolerance_change=1e-12,
)

last = {}


def closure():
    optimizer.zero_grad()
    misfit = 0.5 * (psf(estimate) - measured).pow(2).sum()
    prior = TV_WEIGHT * total_variation(estimate)
    loss = misfit + prior
    loss.backward()
    last["misfit"] = misfit.item()
    last["prior"] = prior.item()
    return loss


start = time.time()
for it in range(ITERATIONS):
    loss = optimizer.step(closure)  # HERE
    if it % 5 == 0:
        print(f"iter {it:4d}  loss {loss.item():.4e}  misfit {last['misfit']:.3e}  "
              f"tv {last['prior']:.3e}  {time.time() - start:.1f}s", flush=True)

with torch.no_grad():
    result = estimate.clamp_min(0).cpu()
    rmse = (result - truth).pow(2).mean().sqrt().item()
    print(f"rmse of the measurement {(measured.cpu() - truth).pow(2).mean().sqrt().item():.4f}, "
          f"of the estimate {rmse:.4f}")
