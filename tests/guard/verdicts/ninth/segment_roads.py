"""Road masks for a county, image by image; the threshold is tuned on all of it at the end."""
import argparse
import resource

import torch
import torch.nn.functional as F
from torch import nn


def cap_host_memory(gib):
    """The workstation is shared: lets this process grow by so much and no further."""
    with open("/proc/self/statm") as file:
        mapped = int(file.read().split()[0]) * resource.getpagesize()
    limit = mapped + int(gib * 2 ** 30)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


class RoadNet(nn.Module):
    def __init__(self, classes=8, width=24):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, width, 5, 2, 2), nn.ReLU(), nn.Conv2d(width, 2 * width, 3, 2, 1), nn.ReLU())
        self.mid = nn.Sequential(nn.Conv2d(2 * width, 2 * width, 3, 1, 1), nn.ReLU())
        self.out = nn.Conv2d(2 * width, classes, 1)

    def forward(self, x):
        h = self.out(self.mid(self.down(x)))
        return F.interpolate(h, x.shape[-2:], mode="bilinear")


class County:
    def __init__(self, tiles, size, batch, seed=0):
        self.tiles, self.size, self.batch, self.seed = tiles, size, batch, seed

    def __iter__(self):
        for at in range(0, self.tiles, self.batch):
            gen = torch.Generator().manual_seed(self.seed + at)
            coarse = torch.rand(self.batch, 3, self.size // 16, self.size // 16, generator=gen)
            image = F.interpolate(coarse, size=(self.size, self.size), mode="bilinear")
            truth = (image.mean(1) > 0.55).to(torch.uint8)
            yield image, truth


@torch.inference_mode()
def predict(model, county, device):
    probabilities, truths = [], []
    for number, (image, truth) in enumerate(county):
        probability = model(image.to(device)).softmax(1)
        probabilities.append(probability.cpu())  # HERE
        truths.append(truth)
        if number % 10 == 0:
            print(f"{number * len(image)} tiles", flush=True)
    return probabilities, truths


def best_threshold(probabilities, truths):
    scores = {}
    for step in range(1, 20):
        hit = joined = 0
        for probability, truth in zip(probabilities, truths):
            road = probability[:, 1] > step / 20
            hit += (road & truth.bool()).sum().item()
            joined += (road | truth.bool()).sum().item()
        scores[step / 20] = hit / max(joined, 1)
    return max(scores.items(), key=lambda pair: pair[1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tiles", type=int, default=2400)
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--host-gib", type=float, default=8)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = RoadNet().to(device).eval()
    with torch.inference_mode():
        model(torch.zeros(args.batch, 3, args.size, args.size, device=device)).cpu()
    cap_host_memory(args.host_gib)
    probabilities, truths = predict(model, County(args.tiles, args.size, args.batch), device)
    threshold, iou = best_threshold(probabilities, truths)
    print(f"threshold {threshold} gives IoU {iou:.3f}")


if __name__ == "__main__":
    main()
