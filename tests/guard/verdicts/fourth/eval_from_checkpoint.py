import os
import tempfile
import torch
from torch import nn

CKPT = os.path.join(tempfile.gettempdir(), "wide_last.pt")


def build():
    return nn.Sequential(*[m for _ in range(4) for m in (nn.Linear(6144, 6144), nn.ReLU())])


def write_checkpoint():
    """stands for the training job of last night"""
    net = build()
    sd = net.state_dict()
    torch.save({
        "epoch": 12,
        "model": sd,
        "ema": {k: v.clone() for k, v in sd.items()},
        "optimizer": {k: {"exp_avg": torch.zeros_like(v), "exp_avg_sq": torch.zeros_like(v)} for k, v in sd.items()},
    }, CKPT)


def load_for_eval(device):
    net = build().to(device).eval()
    ckpt = torch.load(CKPT, map_location=device)  # HERE
    net.load_state_dict(ckpt["model"])
    print("epoch", ckpt["epoch"])
    return net


if __name__ == "__main__":
    write_checkpoint()
    net = load_for_eval("cuda")
    with torch.inference_mode():
        for i in range(20):
            out = net(torch.randn(256, 6144, device="cuda"))
            print(i, out.mean().item())
    os.remove(CKPT)
