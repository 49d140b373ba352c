"""Average the weights of the last checkpoints of a run and test the average."""
import os
import shutil
import tempfile

import torch
from torch import nn

DEVICE = torch.device("cuda")
N_CKPT = 9


def build():
    return nn.Sequential(
        nn.Linear(2048, 4096), nn.ReLU(),
        nn.Linear(4096, 4096), nn.ReLU(),
        nn.Linear(4096, 4096), nn.ReLU(),
        nn.Linear(4096, 4096), nn.ReLU(),
        nn.Linear(4096, 10),
    )


def train_and_save(folder):
    with DEVICE:
        model = build()
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    paths = []
    for i in range(N_CKPT):
        for _ in range(10):
            x = torch.randn(256, 2048, device=DEVICE)
            y = x[:, :10].argmax(1)
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        path = os.path.join(folder, f"ckpt_{i}.pt")
        torch.save(model.state_dict(), path)
        paths.append(path)
        print(f"saved {path} loss {loss.item():.3f}", flush=True)
    return paths


def average(paths):
    states = [torch.load(p, map_location=DEVICE) for p in paths]  # HERE
    print(f"averaging {len(states)} checkpoints")
    out = {}
    for key in states[0]:
        out[key] = sum(s[key] for s in states) / len(states)
    return out


def main():
    folder = tempfile.mkdtemp(prefix="soup_")
    try:
        paths = train_and_save(folder)
        torch.cuda.empty_cache()
        soup = build().to(DEVICE)
        soup.load_state_dict(average(paths))
        x = torch.randn(1024, 2048, device=DEVICE)
        acc = (soup(x).argmax(1) == x[:, :10].argmax(1)).float().mean()
        print(f"soup accuracy {acc:.3f}")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
