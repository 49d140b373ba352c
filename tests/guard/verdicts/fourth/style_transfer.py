import argparse
import torch
import torch.nn as nn
import torch.nn.functional as F

ap = argparse.ArgumentParser()
ap.add_argument("--size", type=int, default=2560)
ap.add_argument("--rounds", type=int, default=50)
ap.add_argument("--device", default="cuda")
args = ap.parse_args()

torch.manual_seed(0)
features = nn.Sequential(
    nn.Conv2d(3, 8, 5, stride=4, padding=2), nn.Tanh(),
    nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.Tanh(),
).to(args.device).requires_grad_(False)


def gram(f):
    f = f.flatten(2)
    return f @ f.transpose(1, 2) / f.shape[-1]


content = torch.rand(1, 3, args.size, args.size, device=args.device)
style = torch.rand(1, 3, args.size, args.size, device=args.device).pow(3)
with torch.no_grad():
    target_content = features(content)
    target_style = gram(features(style))

canvas = content.clone().requires_grad_()
opt = torch.optim.LBFGS([canvas], history_size=100, max_iter=20, line_search_fn="strong_wolfe")  # HERE

for r in range(args.rounds):
    def closure():
        opt.zero_grad()
        f = features(canvas)
        loss = (f - target_content).pow(2).sum() + 1e6 * F.mse_loss(gram(f), target_style, reduction="sum")
        loss.backward()
        return loss
    value = opt.step(closure)
    print(f"round {r}: {value.item():.4g}", flush=True)
