"""Continue a run from its last checkpoint (writes one first if there is none)."""
import copy
import os
import torch
import torch.nn as nn
from accelerate import Accelerator
from accelerate.utils import set_seed

CKPT = "/tmp/acc_resume_last.pt"


def build():
    return nn.Sequential(nn.Linear(1024, 6656), nn.SiLU(), nn.Linear(6656, 6656), nn.SiLU(),
                         nn.Linear(6656, 6656), nn.SiLU(), nn.Linear(6656, 256))


def batch(bs=128):
    x = torch.randn(bs, 1024)
    return x, torch.sin(x[:, :256]) * x[:, 256:512]


def write_first_checkpoint():
    net = build()
    opt = torch.optim.AdamW(net.parameters(), lr=1e-4)
    x, y = batch(4)
    nn.functional.mse_loss(net(x), y).backward()
    opt.step()
    torch.save({"step": 1, "model": net.state_dict(), "ema": copy.deepcopy(net.state_dict()),
                "best": copy.deepcopy(net.state_dict()), "best_loss": 9.9, "opt": opt.state_dict()}, CKPT)


def main():
    set_seed(3)
    if not os.path.exists(CKPT):
        write_first_checkpoint()
    accelerator = Accelerator()
    net = build()
    opt = torch.optim.AdamW(net.parameters(), lr=1e-4)
    net, opt = accelerator.prepare(net, opt)

    ckpt = torch.load(CKPT, map_location="cuda")  # HERE
    accelerator.unwrap_model(net).load_state_dict(ckpt["model"])
    opt.load_state_dict(ckpt["opt"])
    accelerator.print(f"resumed at step {ckpt['step']}, best loss {ckpt['best_loss']}", flush=True)

    for step in range(ckpt["step"], 2000):
        x, y = (t.to(accelerator.device) for t in batch())
        loss = nn.functional.mse_loss(net(x), y)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
        if step % 100 == 0:
            accelerator.print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
