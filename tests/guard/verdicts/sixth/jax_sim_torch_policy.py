"""Collect trajectories from a JAX point-mass simulator and clone the expert in PyTorch."""
import argparse

import numpy as np
import torch
import torch.nn as nn
import jax  # HERE
import jax.numpy as jnp


def dynamics(state, action):
    pos, vel = state
    vel = 0.98 * vel + 0.05 * action
    return pos + 0.05 * vel, vel


def expert(state, goal):
    pos, vel = state
    return jnp.clip(4.0 * (goal - pos) - 1.5 * vel, -1, 1)


@jax.jit
def rollout(key):
    k1, k2 = jax.random.split(key)
    goal = jax.random.uniform(k1, (8,), minval=-1, maxval=1)
    start = (jax.random.normal(k2, (8,)), jnp.zeros(8))

    def body(state, _):
        act = expert(state, goal)
        obs = jnp.concatenate([state[0], state[1], goal])
        return dynamics(state, act), (obs, act)

    _, (obs, act) = jax.lax.scan(body, start, None, length=128)
    return obs, act


def collect(n, seed):
    keys = jax.random.split(jax.random.PRNGKey(seed), n)
    obs, act = jax.vmap(rollout)(keys)
    return np.array(obs), np.array(act)


class Policy(nn.Module):
    def __init__(self, dim=768, depth=12):
        super().__init__()
        self.inp = nn.Linear(24, dim)
        layer = nn.TransformerEncoderLayer(dim, 12, 4 * dim, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, depth)
        self.out = nn.Linear(dim, 8)

    def forward(self, obs):
        mask = nn.Transformer.generate_square_subsequent_mask(obs.size(1), device=obs.device)
        return self.out(self.body(self.inp(obs), mask=mask, is_causal=True))


def train(policy, obs, act, args):
    opt = torch.optim.AdamW(policy.parameters(), lr=args.lr)
    for step in range(args.steps):
        idx = torch.randint(0, len(obs), (args.batch,))
        o = torch.from_numpy(obs[idx.numpy()]).to(args.device)
        a = torch.from_numpy(act[idx.numpy()]).to(args.device)
        loss = (policy(o) - a).abs().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(f"{step:5d} l1 {loss.item():.4f}", flush=True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--trajectories", type=int, default=4096)
    ap.add_argument("--batch", type=int, default=8)
    ap.add_argument("--steps", type=int, default=300)
    ap.add_argument("--lr", type=float, default=1e-4)
    ap.add_argument("--device", default="cuda")
    args = ap.parse_args()
    obs, act = collect(args.trajectories, seed=0)  # HERE
    print("expert data", obs.shape, obs.nbytes / 2**20, "MiB")
    train(Policy().to(args.device), obs, act, args)


if __name__ == "__main__":
    main()
