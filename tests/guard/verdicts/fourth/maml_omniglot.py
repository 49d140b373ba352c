"""MAML on synthetic 20-way omniglot-like tasks."""
import argparse
import math
import torch
import torch.nn.functional as F


def init_params(ways, ch, device):
    p, cin = [], 1
    for _ in range(4):
        p += [torch.randn(ch, cin, 3, 3, device=device) * math.sqrt(2 / (9 * cin)), torch.zeros(ch, device=device)]
        cin = ch
    p += [torch.randn(ways, ch, device=device) * 0.05, torch.zeros(ways, device=device)]
    return [t.requires_grad_() for t in p]


def net(x, p):
    for i in range(4):
        x = F.relu(F.conv2d(x, p[2 * i], p[2 * i + 1], padding=1))
        x = F.avg_pool2d(x, 2)
    return F.linear(x.mean((2, 3)), p[8], p[9])


def adapt(params, xs, ys, steps, lr):
    fast = params
    for _ in range(steps):
        loss = F.cross_entropy(net(xs, fast), ys)
        grads = torch.autograd.grad(loss, fast, create_graph=True)  # HERE
        fast = [w - lr * g for w, g in zip(fast, grads)]
    return fast


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--ways", type=int, default=20)
    ap.add_argument("--shots", type=int, default=5)
    ap.add_argument("--inner-steps", type=int, default=100)  # HERE
    ap.add_argument("--inner-lr", type=float, default=0.01)
    ap.add_argument("--device", default="cuda")
    args = ap.parse_args()
    params = init_params(args.ways, 64, args.device)
    meta = torch.optim.Adam(params, lr=1e-3)
    n = args.ways * args.shots
    for it in range(200):
        xs = torch.rand(n, 1, 32, 32, device=args.device)
        ys = torch.arange(args.ways, device=args.device).repeat(args.shots)
        xq = torch.rand(n, 1, 32, 32, device=args.device)
        fast = adapt(params, xs, ys, args.inner_steps, args.inner_lr)
        q_loss = F.cross_entropy(net(xq, fast), ys)
        meta.zero_grad()
        q_loss.backward()
        meta.step()
        print(f"iter {it}: query loss {q_loss.item():.3f}")


if __name__ == "__main__":
    main()
