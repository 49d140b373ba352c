"""Vectorised pendulum swing-up in JAX, policy gradient in PyTorch."""
import argparse
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import torch
import torch.nn as nn

DT, G, M, L = 0.05, 10.0, 1.0, 1.0


def reset(key):
    k1, k2 = jax.random.split(key)
    th = jax.random.uniform(k1, (), minval=-jnp.pi, maxval=jnp.pi)
    thdot = jax.random.uniform(k2, (), minval=-1.0, maxval=1.0)
    return jnp.stack([th, thdot])


def dynamics(state, u):
    th, thdot = state
    u = jnp.clip(u, -2.0, 2.0)
    ang = ((th + jnp.pi) % (2 * jnp.pi)) - jnp.pi
    cost = ang ** 2 + 0.1 * thdot ** 2 + 0.001 * u ** 2
    thdot = jnp.clip(thdot + (3 * G / (2 * L) * jnp.sin(th) + 3.0 / (M * L ** 2) * u) * DT, -8, 8)
    th = th + thdot * DT
    return jnp.stack([th, thdot]), -cost


def observe(state):
    return jnp.stack([jnp.cos(state[0]), jnp.sin(state[0]), state[1]])


class JaxPendulum:
    def __init__(self, n_envs, seed):
        self.key = jax.random.PRNGKey(seed)  # HERE
        self.n = n_envs
        self._reset = jax.jit(jax.vmap(reset))
        self._step = jax.jit(jax.vmap(dynamics))
        self._obs = jax.jit(jax.vmap(observe))

    def reset(self):
        self.key, sub = jax.random.split(self.key)
        self.state = self._reset(jax.random.split(sub, self.n))
        return np.asarray(self._obs(self.state))

    def step(self, action):
        self.state, r = self._step(self.state, jnp.asarray(action))
        return np.asarray(self._obs(self.state)), np.asarray(r)


class Policy(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.f = nn.Sequential(nn.Linear(3, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(),
                               nn.Linear(width, width), nn.Tanh())
        self.mu = nn.Linear(width, 1)
        self.v = nn.Linear(width, 1)
        self.log_std = nn.Parameter(torch.zeros(1))

    def forward(self, obs):
        h = self.f(obs)
        return torch.distributions.Normal(2 * torch.tanh(self.mu(h)), self.log_std.exp()), self.v(h)


def returns_to_go(rewards, gamma):
    out, acc = [], torch.zeros_like(rewards[0])
    for r in reversed(rewards):
        acc = r + gamma * acc
        out.append(acc)
    return torch.stack(out[::-1])


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--envs", type=int, default=16384)
    ap.add_argument("--horizon", type=int, default=32)
    ap.add_argument("--width", type=int, default=512)
    ap.add_argument("--minibatch", type=int, default=131072)
    ap.add_argument("--iters", type=int, default=200)
    ap.add_argument("--gamma", type=float, default=0.97)
    ap.add_argument("--lr", type=float, default=3e-4)
    args = ap.parse_args()

    env = JaxPendulum(args.envs, seed=0)
    obs = env.reset()
    dev = torch.device("cuda")
    torch.manual_seed(0)
    pi = Policy(args.width).to(dev)
    opt = torch.optim.Adam(pi.parameters(), lr=args.lr)
    put = partial(torch.tensor, device=dev, dtype=torch.float32)
    for it in range(args.iters):
        O, A, R = [], [], []
        for _ in range(args.horizon):
            o = put(obs)
            with torch.no_grad():
                a = pi(o)[0].sample()
            obs, r = env.step(a.squeeze(-1).cpu().numpy())
            O.append(o), A.append(a), R.append(put(r))
        ret = returns_to_go(R, args.gamma).flatten()
        O, A = torch.cat(O), torch.cat(A)
        for idx in torch.randperm(len(O), device=dev).split(args.minibatch):
            d, v = pi(O[idx])
            adv = ret[idx] - v.squeeze(-1)
            adv_n = (adv.detach() - adv.mean().detach()) / (adv.std().detach() + 1e-6)
            loss = -(d.log_prob(A[idx]).squeeze(-1) * adv_n).mean() + 0.01 * adv.pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(f"iter {it} mean reward {torch.stack(R).mean().item():.3f} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
