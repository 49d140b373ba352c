"""Multi-task molecule property prediction with gradient surgery (PCGrad)."""
import argparse
import random

import torch
import torch.nn as nn
import torch.nn.functional as F


class Trunk(nn.Module):
    def __init__(self, inputs=2048, width=2048, depth=7):
        super().__init__()
        dims = [inputs] + [width] * depth
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(dims, dims[1:]))

    def forward(self, x):
        for layer in self.layers:
            x = F.silu(layer(x))
        return x


class MultiTask(nn.Module):
    def __init__(self, tasks):
        super().__init__()
        self.trunk = Trunk()
        self.heads = nn.ModuleList(nn.Linear(2048, 1) for _ in range(tasks))

    def losses(self, x, y):
        h = self.trunk(x)
        return [F.smooth_l1_loss(head(h).squeeze(-1), y[:, t])
                for t, head in enumerate(self.heads)]


class PCGrad:
    def __init__(self, shared, optimizer):
        self.shared, self.opt = list(shared), optimizer

    def _task_gradients(self, losses):
        out = []
        for loss in losses:
            grads = torch.autograd.grad(loss, self.shared, retain_graph=True)
            out.append(torch.cat([g.flatten() for g in grads]))  # HERE
        return out

    @staticmethod
    def _project(g, others):
        for o in others:
            dot = torch.dot(g, o)
            if dot < 0:
                g.sub_(dot / (o.dot(o) + 1e-12) * o)
        return g

    def step(self, losses):
        grads = self._task_gradients(losses)
        merged = torch.zeros_like(grads[0])
        for i in range(len(grads)):
            others = grads[:i] + grads[i + 1:]
            random.shuffle(others)
            merged += self._project(grads[i].clone(), others)
        self.opt.zero_grad()
        sum(losses).backward()
        offset = 0
        for p in self.shared:
            p.grad = merged[offset:offset + p.numel()].view_as(p)
            offset += p.numel()
        self.opt.step()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--tasks", type=int, default=48)
    ap.add_argument("--batch", type=int, default=256)
    ap.add_argument("--steps", type=int, default=100)
    args = ap.parse_args()
    torch.manual_seed(0)
    model = MultiTask(args.tasks).cuda()
    opt = torch.optim.Adam(model.parameters(), lr=1e-4)
    surgery = PCGrad(model.trunk.parameters(), opt)
    for step in range(args.steps):
        fingerprints = (torch.rand(args.batch, 2048, device="cuda") < 0.05).float()
        targets = torch.randn(args.batch, args.tasks, device="cuda")
        losses = model.losses(fingerprints, targets)
        surgery.step(losses)
        print(f"step {step} mean loss {sum(l.item() for l in losses) / len(losses):.4f}",
              flush=True)


if __name__ == "__main__":
    main()
