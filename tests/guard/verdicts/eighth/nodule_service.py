"""Lung-nodule detection queue worker. Failed studies are retried, then reported at the end of the shift."""
import argparse
import logging
import random
import traceback
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

log = logging.getLogger("nodule-worker")


class QualityError(RuntimeError):
    pass


@dataclass
class Study:
    uid: str
    slices: int
    noise: float


class Net3D(nn.Module):
    def __init__(self, base=12):
        super().__init__()
        self.enc1 = nn.Sequential(nn.Conv3d(1, base, 3, padding=1), nn.InstanceNorm3d(base), nn.LeakyReLU(0.1, True))
        self.enc2 = nn.Sequential(nn.Conv3d(base, 2 * base, 3, stride=2, padding=1), nn.LeakyReLU(0.1, True))
        self.dec = nn.Conv3d(2 * base, base, 3, padding=1)
        self.out = nn.Conv3d(2 * base, 2, 1)

    def forward(self, x):
        skip = self.enc1(x)
        deep = self.dec(self.enc2(skip))
        deep = F.interpolate(deep, size=skip.shape[2:], mode="trilinear", align_corners=False)
        return self.out(torch.cat([skip, deep], dim=1))


class Worker:
    def __init__(self, device, max_retries, min_snr):
        self.device = device
        self.max_retries = max_retries
        self.min_snr = min_snr
        self.model = Net3D().to(device).eval()
        self.results = {}
        self.failures = {}

    def load(self, study):
        g = torch.Generator(device=self.device).manual_seed(hash(study.uid) % 2 ** 31)
        vol = torch.randn(1, 1, study.slices, 320, 320, device=self.device, generator=g)
        return 0.2 + study.noise * vol

    @torch.inference_mode()
    def analyse(self, study):
        volume = self.load(study)
        probs = self.model(volume).softmax(dim=1)
        snr = (volume.mean() / volume.std()).item()
        if snr < self.min_snr:
            raise QualityError(f"{study.uid}: SNR {snr:.3f} below {self.min_snr}")
        nodules = (probs[:, 1] > 0.5).float()
        return {"volume_mm3": nodules.sum().item() * 0.7, "confidence": probs.amax().item()}

    def process(self, study):
        for attempt in range(1, self.max_retries + 1):
            try:
                self.results[study.uid] = self.analyse(study)
                return True
            except QualityError as err:
                log.warning("attempt %d failed: %s", attempt, err)
                self.failures.setdefault(study.uid, []).append(err)  # HERE
        return False

    def report(self):
        for uid, errors in self.failures.items():
            log.error("%s failed %d times", uid, len(errors))
            log.debug("%s", "".join(traceback.format_exception(errors[-1])))


def studies(n, bad_rate, seed):
    rng = random.Random(seed)
    for i in range(n):
        noisy = rng.random() < bad_rate
        yield Study(f"1.2.840.{i:06d}", rng.choice([64, 80, 96]), 2.5 if noisy else 0.4)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--studies", type=int, default=500)
    ap.add_argument("--retries", type=int, default=2)
    ap.add_argument("--bad-rate", type=float, default=0.2)
    ap.add_argument("--min-snr", type=float, default=0.2)
    ap.add_argument("--seed", type=int, default=3)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(name)s %(levelname)s %(message)s")
    worker = Worker(torch.device("cuda"), args.retries, args.min_snr)
    done = 0
    for study in studies(args.studies, args.bad_rate, args.seed):
        done += worker.process(study)
        if done and done % 10 == 0:
            log.info("%d studies analysed, last: %s", done, study.uid)
    worker.report()


if __name__ == "__main__":
    main()
