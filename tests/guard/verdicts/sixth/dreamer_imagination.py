"""Actor training inside a learnt world model (Dreamer-like), vector observations."""
import argparse

import torch
import torch.nn as nn


class WorldModel(nn.Module):
    def __init__(self, obs=64, act=6, deter=1024, stoch=64):
        super().__init__()
        self.act, self.deter, self.stoch = act, deter, stoch
        self.inp = nn.Sequential(nn.Linear(stoch + act, deter), nn.ELU())
        self.cell = nn.GRUCell(deter, deter)
        self.prior = nn.Sequential(nn.Linear(deter, deter), nn.ELU(), nn.Linear(deter, 2 * stoch))
        self.post = nn.Sequential(nn.Linear(deter + obs, deter), nn.ELU(),
                                  nn.Linear(deter, 2 * stoch))
        self.reward = nn.Sequential(nn.Linear(deter + stoch, 400), nn.ELU(), nn.Linear(400, 1))

    @staticmethod
    def _draw(stats):
        mean, raw = stats.chunk(2, -1)
        return mean + (nn.functional.softplus(raw) + 0.1) * torch.randn_like(mean)

    def step(self, h, z, a):
        h = self.cell(self.inp(torch.cat([z, a], -1)), h)
        return h, self._draw(self.prior(h))

    @torch.no_grad()
    def observe(self, obs, act):
        b, t, _ = obs.shape
        h = obs.new_zeros(b, self.deter)
        z = obs.new_zeros(b, self.stoch)
        hs, zs = [], []
        for k in range(t):
            h, _ = self.step(h, z, act[:, k])
            z = self._draw(self.post(torch.cat([h, obs[:, k]], -1)))
            hs.append(h)
            zs.append(z)
        return torch.stack(hs, 1), torch.stack(zs, 1)


def imagine(wm, actor, h, z, horizon):
    rewards = []
    for _ in range(horizon):
        a = torch.tanh(actor(torch.cat([h, z], -1).detach()))
        h, z = wm.step(h, z, a)
        rewards.append(wm.reward(torch.cat([h, z], -1)).squeeze(-1))
    return torch.stack(rewards)


def actor_loss(wm, actor, obs, act, horizon, gamma=0.99):
    h, z = wm.observe(obs, act)
    # every posterior state is a starting point
    h, z = h.flatten(0, 1), z.flatten(0, 1)  # HERE
    rewards = imagine(wm, actor, h, z, horizon)  # HERE
    discount = gamma ** torch.arange(horizon, device=rewards.device)
    return -(discount[:, None] * rewards).sum(0).mean()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--batch", type=int, default=64)
    ap.add_argument("--length", type=int, default=64)
    ap.add_argument("--horizon", type=int, default=50)
    ap.add_argument("--updates", type=int, default=200)
    args = ap.parse_args()
    torch.manual_seed(0)
    wm = WorldModel().cuda()
    actor = nn.Sequential(nn.Linear(1088, 400), nn.ELU(), nn.Linear(400, 6)).cuda()
    opt = torch.optim.Adam(actor.parameters(), lr=8e-5)
    for u in range(args.updates):
        obs = torch.randn(args.batch, args.length, 64, device="cuda")
        act = torch.rand(args.batch, args.length, 6, device="cuda") * 2 - 1
        loss = actor_loss(wm, actor, obs, act, args.horizon)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(actor.parameters(), 100)
        opt.step()
        print(f"update {u} imagined return {-loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
