"""Maximum intensity projections for a folder of CT scans (synthetic here)."""
import torch

SHAPE = (1024, 768, 768)
dev = torch.device("cuda")


def read_scan(idx):
    g = torch.Generator(device=dev).manual_seed(idx)
    hu = torch.rand(SHAPE, generator=g, device=dev)
    hu.mul_(4096).sub_(1024)
    return hu


def window(v, lo=-160.0, hi=240.0):
    return v.clamp_(lo, hi).sub_(lo).div_(hi - lo)


projections = []
for idx in range(12):
    volume = window(read_scan(idx))  # HERE
    projections.append(volume.amax(dim=0).cpu())
    print(f"scan {idx:02d}  mean {projections[-1].mean():.4f}", flush=True)

torch.save(projections, "/tmp/mip.pt")
