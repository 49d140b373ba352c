import os
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def setup():
    dist.init_process_group("gloo")
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank % torch.cuda.device_count())  # HERE
    return local_rank


def main():
    rank = setup()
    device = torch.device("cuda", torch.cuda.current_device())
    torch.manual_seed(rank)
    net = nn.Sequential(*[m for _ in range(6) for m in (nn.Linear(4096, 4096), nn.ReLU())]).to(device)
    ddp = DDP(net, device_ids=[device.index])
    opt = torch.optim.Adam(ddp.parameters(), lr=1e-4)
    for step in range(40):
        x = torch.randn(64, 4096, device=device)
        loss = (ddp(x) - x).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if rank == 0:
            print("step", step, loss.item(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
