"""Frame descriptors of a video collection."""
import argparse
import resource

import torch
import torchvision


def vm_bytes():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[0]) * resource.getpagesize()


def be_nice(gib):
    """Cap what this process may still map, so that it cannot take the login node down."""
    cap = vm_bytes() + int(gib * 2 ** 30)
    resource.setrlimit(resource.RLIMIT_AS, (cap, cap))


class Backbone(torch.nn.Module):
    def __init__(self):
        super().__init__()
        net = torchvision.models.resnet18(weights=None)
        self.stem = torch.nn.Sequential(net.conv1, net.bn1, net.relu, net.maxpool, net.layer1,
                                        net.layer2)

    def forward(self, x):
        return self.stem(x)


def frames(video, count, size):
    g = torch.Generator().manual_seed(video)
    return torch.randint(0, 255, (count, 3, size, size), generator=g, dtype=torch.uint8)


@torch.inference_mode()
def describe(net, clip, device):
    x = clip.to(device).float().div_(255).sub_(0.45).div_(0.225)
    return net(x)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--videos", type=int, default=400)
    ap.add_argument("--frames", type=int, default=128)
    ap.add_argument("--size", type=int, default=224)
    ap.add_argument("--host-gib", type=float, default=6.0)
    ap.add_argument("--device", default="cuda")
    args = ap.parse_args()

    torch.set_num_threads(4)
    torch.manual_seed(0)
    net = Backbone().to(args.device).eval()
    describe(net, frames(0, args.frames, args.size), args.device).cpu()
    be_nice(args.host_gib)

    maps = {}
    for video in range(args.videos):
        feats = describe(net, frames(video, args.frames, args.size), args.device)
        maps[video] = feats.cpu()  # HERE
        if video % 10 == 0:
            print(f"video {video}: {tuple(feats.shape)}", flush=True)
    table = torch.stack([maps[v].mean(dim=(0, 2, 3)) for v in sorted(maps)])
    print("descriptor table", tuple(table.shape))


if __name__ == "__main__":
    main()
