import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel

PATH = os.path.join(tempfile.gettempdir(), "ddp_resume_state.pt")
WIDTH, DEPTH = 4096, 7


def build():
    layers = []
    for _ in range(DEPTH):
        layers += [nn.Linear(WIDTH, WIDTH), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(WIDTH, 8))


def write_previous_run():
    """Stands in for the run that was interrupted."""
    state = {k: v.clone() for k, v in build().state_dict().items()}
    torch.save({
        "step": 1200,
        "model": state,
        "ema": {k: v.clone() for k, v in state.items()},
        "swa": {k: v.clone() for k, v in state.items()},
        "best": {k: v.clone() for k, v in state.items()},
    }, PATH)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    device = torch.device("cuda:0")
    if rank == 0:
        write_previous_run()
        print("checkpoint written", os.path.getsize(PATH) // 2 ** 20, "MiB", flush=True)
    dist.barrier()

    model = build().to(device)
    checkpoint = torch.load(PATH, map_location=device)  # HERE
    model.load_state_dict(checkpoint["model"])
    start = checkpoint["step"]
    ddp = DistributedDataParallel(model, device_ids=[0])
    opt = torch.optim.SGD(ddp.parameters(), lr=1e-3, momentum=0.9)
    if rank == 0:
        print(f"resumed at step {start}", flush=True)

    for step in range(start, start + 4):
        x = torch.randn(256, WIDTH, device=device)
        y = torch.randint(0, 8, (256,), device=device)
        loss = nn.functional.cross_entropy(ddp(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if rank == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)

    dist.barrier()
    if rank == 0:
        checkpoint["step"] = step
        torch.save({"step": step, "model": model.state_dict(), "ema": checkpoint["ema"]}, PATH)
        os.remove(PATH)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
