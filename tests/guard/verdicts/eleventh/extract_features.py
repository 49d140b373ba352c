"""Extract feature maps of a clip set on the GPU and report their channel statistics."""
import resource

import numpy as np
import torch
from torch import nn

HOST_ALLOWANCE = 3 * 2 ** 30


def virtual_size():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[0]) * resource.getpagesize()


def cap_host_memory():
    """Shared node: stay within our allowance on top of what the process maps now."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = virtual_size() + HOST_ALLOWANCE
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    print(f"host allowance {HOST_ALLOWANCE / 2 ** 30:.0f} GiB")


class Extractor(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(),
            nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.ReLU(),
        )

    def forward(self, x):
        return self.body(x)


@torch.no_grad()
def main(n_clips=120, frames=16):
    torch.manual_seed(0)
    model = Extractor().cuda().eval()
    model(torch.randn(frames, 3, 224, 224, device="cuda")).cpu().numpy()
    cap_host_memory()

    features = []
    for clip in range(n_clips):
        x = torch.randn(frames, 3, 224, 224, device="cuda")
        fmap = model(x).cpu().numpy()
        features.append(fmap)  # HERE
        if clip % 5 == 0:
            print(f"clip {clip}: {fmap.shape} mean {fmap.mean():.4f}", flush=True)

    per_clip = np.stack([f.mean(axis=(0, 2, 3)) for f in features])
    print("channel means", per_clip.mean(0)[:6].round(4))
    print("channel spread", per_clip.std(0)[:6].round(4))


if __name__ == "__main__":
    main()
