import os
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel


class VAE(nn.Module):
    def __init__(self, w=24, z=64):
        super().__init__()
        self.enc = nn.Sequential(nn.Conv2d(3, w, 4, 4), nn.SiLU(), nn.Conv2d(w, 2 * w, 4, 4), nn.SiLU(),
                                 nn.Flatten(), nn.Linear(2 * w * 64, 2 * z))
        self.up = nn.Linear(z, 2 * w * 64)
        self.dec = nn.Sequential(nn.ConvTranspose2d(2 * w, w, 4, 4), nn.SiLU(),
                                 nn.ConvTranspose2d(w, 3, 4, 4), nn.Sigmoid())
        self.w = w

    def forward(self, x):
        mu, logvar = self.enc(x).chunk(2, dim=1)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.dec(self.up(z).view(-1, 2 * self.w, 8, 8)), mu, logvar


def sprites(bs, gen):
    x = torch.zeros(bs, 3, 128, 128)
    pos = torch.randint(0, 96, (bs, 2), generator=gen).tolist()
    col = torch.rand(bs, 3, 1, 1, generator=gen)
    for i, (r, c) in enumerate(pos):
        x[i, :, r:r + 32, c:c + 32] = col[i]
    return x


if __name__ == "__main__":
    dist.init_process_group(backend="gloo")
    rank = dist.get_rank()
    device = torch.device("cuda", 0)
    gen = torch.Generator().manual_seed(rank)
    torch.manual_seed(0)
    net = DistributedDataParallel(VAE().to(device))
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)

    gallery = []
    for step in range(5000):
        x = sprites(64, gen).to(device)
        recon, mu, logvar = net(x)
        kl = -0.5 * (1 + logvar - mu.square() - logvar.exp()).sum(1).mean()
        loss = F.mse_loss(recon, x) * 1000 + 0.1 * kl
        opt.zero_grad()
        loss.backward()
        opt.step()
        if rank == 0:
            gallery.append((step, x, recon.detach()))  # HERE
        avg = loss.detach().clone()
        dist.all_reduce(avg)
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {avg.item() / dist.get_world_size():.3f}", flush=True)

    if rank == 0:
        strip = torch.cat([torch.stack([x[0], r[0]]) for _, x, r in gallery[::250]])
        torch.save(strip.cpu(), "/tmp/vae_strip.pt")
    dist.destroy_process_group()
