"""Physics-informed network for the viscous Burgers equation, Adam followed by L-BFGS."""
import argparse
import math
import time

import torch
import torch.nn as nn

NU = 0.01 / math.pi


class FourierFeatures(nn.Module):
    def __init__(self, n, sigma=2.0):
        super().__init__()
        self.register_buffer("b", torch.randn(2, n) * sigma)

    def forward(self, z):
        p = z @ self.b
        return torch.cat([p.sin(), p.cos()], dim=-1)


class PINN(nn.Module):
    def __init__(self, width, depth, n_fourier=128):
        super().__init__()
        mods = [FourierFeatures(n_fourier), nn.Linear(2 * n_fourier, width), nn.Tanh()]
        for _ in range(depth - 1):
            mods += [nn.Linear(width, width), nn.Tanh()]
        mods.append(nn.Linear(width, 1))
        self.net = nn.Sequential(*mods)
        for m in self.net:
            if isinstance(m, nn.Linear):
                nn.init.xavier_normal_(m.weight)
                nn.init.zeros_(m.bias)

    def forward(self, x, t):
        return self.net(torch.cat([x, t], dim=1))


class Burgers:
    def __init__(self, n_col, n_bc, device):
        self.x = (torch.rand(n_col, 1, device=device) * 2 - 1).requires_grad_()
        self.t = torch.rand(n_col, 1, device=device).requires_grad_()
        self.x0 = torch.linspace(-1, 1, n_bc, device=device)[:, None]
        self.u0 = -torch.sin(math.pi * self.x0)
        self.tb = torch.rand(n_bc, 1, device=device)

    def residual(self, net):
        u = net(self.x, self.t)
        ones = torch.ones_like(u)
        u_x, u_t = torch.autograd.grad(u, (self.x, self.t), ones, create_graph=True)
        u_xx, = torch.autograd.grad(u_x, self.x, ones, create_graph=True)
        return u_t + u * u_x - NU * u_xx

    def loss(self, net, w_bc=20.0):
        f = self.residual(net).pow(2).mean()
        ic = (net(self.x0, torch.zeros_like(self.x0)) - self.u0).pow(2).mean()
        one = torch.ones_like(self.tb)
        bc = net(one, self.tb).pow(2).mean() + net(-one, self.tb).pow(2).mean()
        return f + w_bc * (ic + bc), f.detach()


def run_adam(net, problem, steps, lr):
    opt = torch.optim.Adam(net.parameters(), lr=lr)
    for i in range(steps):
        opt.zero_grad(set_to_none=True)
        loss, f = problem.loss(net)
        loss.backward()
        opt.step()
        if i % 50 == 0:
            print(f"adam  {i:5d} loss {loss.item():.3e} residual {f.item():.3e}")


def run_lbfgs(net, problem, outer, max_iter, history):
    opt = torch.optim.LBFGS(net.parameters(), lr=1.0, max_iter=max_iter, history_size=history,
                            tolerance_grad=1e-10, tolerance_change=1e-14,
                            line_search_fn="strong_wolfe")
    calls = 0

    def closure():
        nonlocal calls
        opt.zero_grad(set_to_none=True)
        loss, _ = problem.loss(net)
        loss.backward()
        calls += 1
        return loss

    t0 = time.time()
    for k in range(outer):
        loss = opt.step(closure)  # HERE
        print(f"lbfgs {k:5d} loss {loss.item():.3e} evals {calls} {time.time() - t0:.1f}s")


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--width", type=int, default=1536)
    ap.add_argument("--depth", type=int, default=6)
    ap.add_argument("--n-col", type=int, default=1024)
    ap.add_argument("--n-bc", type=int, default=128)
    ap.add_argument("--adam-steps", type=int, default=200)
    ap.add_argument("--lbfgs-outer", type=int, default=200)
    ap.add_argument("--lbfgs-iters", type=int, default=10)
    ap.add_argument("--history", type=int, default=100)
    ap.add_argument("--lr", type=float, default=3e-4)
    a = ap.parse_args()

    torch.manual_seed(0)
    dev = torch.device("cuda")
    net = PINN(a.width, a.depth).to(dev)
    problem = Burgers(a.n_col, a.n_bc, dev)
    print(f"{sum(p.numel() for p in net.parameters()) / 1e6:.1f}M parameters")
    run_adam(net, problem, a.adam_steps, a.lr)
    run_lbfgs(net, problem, a.lbfgs_outer, a.lbfgs_iters, a.history)
