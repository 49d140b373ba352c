"""Few-shot image classification with MAML (5-way 5-shot, Conv-4)."""
import argparse

import torch
import torch.nn.functional as F


def init_conv4(ways, ch, size, device):
    params, c = {}, 3
    for k in range(4):
        params[f"w{k}"] = torch.randn(ch, c, 3, 3) * (2 / (9 * c)) ** 0.5
        params[f"g{k}"] = torch.ones(ch)
        params[f"b{k}"] = torch.zeros(ch)
        c = ch
    params["fw"] = torch.randn(ways, ch * (size // 16) ** 2) * 0.01
    params["fb"] = torch.zeros(ways)
    return {k: v.to(device).requires_grad_() for k, v in params.items()}


def forward(p, x):
    for k in range(4):
        x = F.conv2d(x, p[f"w{k}"], padding=1)
        x = F.batch_norm(x, None, None, p[f"g{k}"], p[f"b{k}"], training=True)
        x = F.max_pool2d(F.relu(x), 2)
    return F.linear(x.flatten(1), p["fw"], p["fb"])


def sample_task(ways, shots, queries, size, device):
    proto = torch.randn(ways, 3, size, size, device=device)

    def draw(n):
        y = torch.arange(ways, device=device).repeat_interleave(n)
        return proto[y] + 1.5 * torch.randn(len(y), 3, size, size, device=device), y

    return draw(shots), draw(queries)


def adapt(params, x, y, steps, lr):
    fast = dict(params)
    for _ in range(steps):
        loss = F.cross_entropy(forward(fast, x), y)
        grads = torch.autograd.grad(loss, list(fast.values()), create_graph=True)  # HERE
        fast = {k: v - lr * g for (k, v), g in zip(fast.items(), grads)}
    return fast


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--ways", type=int, default=5)
    ap.add_argument("--shots", type=int, default=5)
    ap.add_argument("--queries", type=int, default=15)
    ap.add_argument("--inner-steps", type=int, default=32)
    ap.add_argument("--inner-lr", type=float, default=0.01)
    ap.add_argument("--meta-batch", type=int, default=4)
    ap.add_argument("--size", type=int, default=80)
    args = ap.parse_args()
    torch.manual_seed(0)
    params = init_conv4(args.ways, 64, args.size, "cuda")
    opt = torch.optim.Adam(params.values(), lr=1e-3)
    for it in range(1000):
        total = 0.0
        for _ in range(args.meta_batch):
            (xs, ys), (xq, yq) = sample_task(args.ways, args.shots, args.queries,
                                             args.size, "cuda")
            fast = adapt(params, xs, ys, args.inner_steps, args.inner_lr)
            loss = F.cross_entropy(forward(fast, xq), yq) / args.meta_batch
            loss.backward()
            total += loss.item()
        opt.step()
        opt.zero_grad()
        print(f"iter {it} meta loss {total:.4f}", flush=True)


if __name__ == "__main__":
    main()
