"""MAML on synthetic 5-way 5-shot episodes (Conv4 backbone, 84x84 images)."""
import argparse
from collections import OrderedDict

import torch
import torch.nn.functional as F


def init_params(n_way, hidden, device):
    p = OrderedDict()
    c_in = 3
    for i in range(4):
        w = torch.empty(hidden, c_in, 3, 3, device=device)
        torch.nn.init.kaiming_normal_(w)
        p[f"conv{i}.weight"] = w
        p[f"conv{i}.bias"] = torch.zeros(hidden, device=device)
        p[f"bn{i}.weight"] = torch.ones(hidden, device=device)
        p[f"bn{i}.bias"] = torch.zeros(hidden, device=device)
        c_in = hidden
    head = torch.empty(n_way, hidden * 25, device=device)
    torch.nn.init.normal_(head, std=0.02)
    p["head.weight"] = head
    p["head.bias"] = torch.zeros(n_way, device=device)
    return OrderedDict((k, v.requires_grad_()) for k, v in p.items())


def conv4(x, p):
    for i in range(4):
        x = F.conv2d(x, p[f"conv{i}.weight"], p[f"conv{i}.bias"], padding=1)
        x = F.batch_norm(x, None, None, p[f"bn{i}.weight"], p[f"bn{i}.bias"], training=True)
        x = F.max_pool2d(F.relu(x), 2)
    return F.linear(x.flatten(1), p["head.weight"], p["head.bias"])


class EpisodeSampler:
    def __init__(self, n_way, k_shot, n_query, device, seed=0):
        self.n, self.k, self.q = n_way, k_shot, n_query
        self.device = device
        self.g = torch.Generator(device=device).manual_seed(seed)

    def __call__(self):
        proto = torch.randn(self.n, 3, 84, 84, generator=self.g, device=self.device)

        def draw(m):
            y = torch.arange(self.n, device=self.device).repeat_interleave(m)
            noise = torch.randn(len(y), 3, 84, 84, generator=self.g, device=self.device)
            return proto[y] * 0.5 + noise, y

        return draw(self.k) + draw(self.q)


def adapt(params, x, y, n_steps, inner_lr, first_order=False):
    fast = params
    for _ in range(n_steps):
        loss = F.cross_entropy(conv4(x, fast), y)
        grads = torch.autograd.grad(loss, list(fast.values()), create_graph=not first_order)  # HERE
        fast = OrderedDict((k, w - inner_lr * g) for (k, w), g in zip(fast.items(), grads))
    return fast


def meta_train_step(params, opt, sampler, args):
    opt.zero_grad()
    acc, losses = 0.0, 0.0
    for _ in range(args.meta_batch):
        xs, ys, xq, yq = sampler()
        fast = adapt(params, xs, ys, args.inner_steps, args.inner_lr, args.first_order)
        logits = conv4(xq, fast)
        loss = F.cross_entropy(logits, yq) / args.meta_batch
        loss.backward()
        losses += loss.item()
        acc += (logits.argmax(1) == yq).float().mean().item() / args.meta_batch
    opt.step()
    return losses, acc


def meta_test(params, sampler, args):
    accs = []
    for _ in range(args.test_episodes):
        xs, ys, xq, yq = sampler()
        fast = adapt(params, xs, ys, args.test_steps, args.inner_lr)  # HERE
        with torch.no_grad():
            accs.append((conv4(xq, fast).argmax(1) == yq).float().mean().item())
    t = torch.tensor(accs)
    return t.mean().item(), 1.96 * t.std().item() / len(accs) ** 0.5


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--n-way", type=int, default=5)
    ap.add_argument("--k-shot", type=int, default=5)
    ap.add_argument("--n-query", type=int, default=15)
    ap.add_argument("--hidden", type=int, default=32)
    ap.add_argument("--meta-batch", type=int, default=2)
    ap.add_argument("--inner-steps", type=int, default=3)
    ap.add_argument("--test-steps", type=int, default=40)
    ap.add_argument("--inner-lr", type=float, default=0.01)
    ap.add_argument("--meta-lr", type=float, default=1e-3)
    ap.add_argument("--iterations", type=int, default=1000)
    ap.add_argument("--test-every", type=int, default=100)
    ap.add_argument("--test-episodes", type=int, default=50)
    ap.add_argument("--first-order", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(0)
    dev = torch.device("cuda")
    params = init_params(args.n_way, args.hidden, dev)
    opt = torch.optim.Adam(params.values(), lr=args.meta_lr)
    train, test = (EpisodeSampler(args.n_way, args.k_shot, args.n_query, dev, s) for s in (0, 1))
    for it in range(1, args.iterations + 1):
        loss, acc = meta_train_step(params, opt, train, args)
        if it % 20 == 0:
            print(f"iter {it} meta-loss {loss:.3f} query-acc {acc:.3f}")
        if it % args.test_every == 0:
            mean, ci = meta_test(params, test, args)
            print(f"== iter {it} test acc {100 * mean:.2f} +- {100 * ci:.2f}")


if __name__ == "__main__":
    main()
