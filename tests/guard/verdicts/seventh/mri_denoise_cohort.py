"""Denoise a cohort of T1 volumes; bad scans are collected and reported at the end."""
import argparse
import sys
import traceback

import numpy as np
import torch
import torch.nn as nn


class ReconstructionError(RuntimeError):
    pass


class Denoiser(nn.Module):
    def __init__(self, ch=8):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv3d(1, ch, 3, padding=1), nn.PReLU())
        self.body = nn.Sequential(nn.Conv3d(ch, ch, 3, padding=1), nn.PReLU())
        self.decoder = nn.Conv3d(ch, 1, 3, padding=1)


class Cohort:
    """Iterates (subject id, volume). Some of the scans are corrupted."""

    shape = (160, 192, 160)

    def __init__(self, n, bad_rate, seed):
        self.rng = np.random.default_rng(seed)
        self.n, self.bad_rate = n, bad_rate
        self.template = self.rng.random(self.shape, dtype=np.float32)

    def __len__(self):
        return self.n

    def __iter__(self):
        for i in range(self.n):
            vol = self.template * np.float32(self.rng.uniform(200, 1500))
            vol = np.roll(vol, int(self.rng.integers(20)), axis=0)
            if self.rng.random() < self.bad_rate:
                vol[int(self.rng.integers(160))] = np.nan
            yield f"sub-{i:04d}", vol


def normalise(vol):
    lo, hi = torch.nanquantile(vol.flatten()[::997], torch.tensor([0.02, 0.98], device=vol.device))
    return (vol - lo) / (hi - lo)


def denoise(model, vol, device):
    x = normalise(torch.from_numpy(vol).to(device))[None, None]
    feats = model.encoder(x)
    feats = feats + model.body(feats)
    out = x - model.decoder(feats)
    if not torch.isfinite(out).all():
        bad = (~torch.isfinite(out)).sum().item()
        raise ReconstructionError(f"{bad} non-finite voxels after denoising")
    return out[0, 0].cpu().numpy()


def snr(vol):
    return float(vol.mean() / (vol.std() + 1e-8))


def report(results, failures, stream=sys.stdout):
    vals = np.array(list(results.values()))
    print(f"{len(results)} ok, median snr {np.median(vals):.3f}", file=stream)
    for sid, exc in failures:
        print(f"--- {sid}", file=stream)
        traceback.print_exception(type(exc), exc, exc.__traceback__, limit=2, file=stream)


@torch.no_grad()
def run(args):
    device = torch.device(args.device)
    torch.manual_seed(0)
    model = Denoiser(args.channels).to(device).eval()
    results, failures = {}, []
    for i, (sid, vol) in enumerate(Cohort(args.subjects, args.bad_rate, args.seed)):
        try:
            results[sid] = snr(denoise(model, vol, device))
        except ReconstructionError as exc:
            failures.append((sid, exc))  # HERE
        if i % 10 == 0:
            print(f"{i + 1}/{args.subjects} done, {len(failures)} failed", flush=True)
    report(results, failures)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--subjects", type=int, default=600)
    parser.add_argument("--bad-rate", type=float, default=0.12)
    parser.add_argument("--channels", type=int, default=8)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seed", type=int, default=5)
    run(parser.parse_args())
