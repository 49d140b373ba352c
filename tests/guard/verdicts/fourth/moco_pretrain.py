"""MoCo style pretraining on synthetic crops."""
import argparse
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision


class MoCo(nn.Module):
    def __init__(self, dim=128, K=4096, m=0.999, T=0.07):
        super().__init__()
        self.K, self.m, self.T = K, m, T
        self.encoder_q = torchvision.models.resnet18(num_classes=dim)
        self.encoder_k = copy.deepcopy(self.encoder_q)
        self.register_buffer("queue", F.normalize(torch.randn(K, dim), dim=1))
        self.ptr = 0

    @torch.no_grad()
    def momentum_update(self):
        for pq, pk in zip(self.encoder_q.parameters(), self.encoder_k.parameters()):
            pk.mul_(self.m).add_(pq, alpha=1 - self.m)

    def enqueue(self, keys):
        n = keys.shape[0]
        self.queue[self.ptr:self.ptr + n] = keys  # HERE
        self.ptr = (self.ptr + n) % self.K

    def forward(self, im_q, im_k):
        q = F.normalize(self.encoder_q(im_q), dim=1)
        self.momentum_update()
        k = F.normalize(self.encoder_k(im_k), dim=1)
        pos = (q * k.detach()).sum(1, keepdim=True)
        neg = q @ self.queue.clone().detach().t()
        logits = torch.cat([pos, neg], dim=1) / self.T
        self.enqueue(k)
        return F.cross_entropy(logits, torch.zeros(len(q), dtype=torch.long, device=q.device))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--batch", type=int, default=64)
    ap.add_argument("--size", type=int, default=128)
    ap.add_argument("--steps", type=int, default=300)
    ap.add_argument("--device", default="cuda")
    args = ap.parse_args()

    model = MoCo().to(args.device)
    opt = torch.optim.SGD(model.encoder_q.parameters(), lr=0.03, momentum=0.9, weight_decay=1e-4)
    for step in range(args.steps):
        imgs = torch.rand(args.batch, 3, args.size, args.size, device=args.device)
        a = imgs + 0.1 * torch.randn_like(imgs)
        b = imgs.flip(-1)
        loss = model(a, b)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 5 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
