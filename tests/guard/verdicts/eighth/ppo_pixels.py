"""PPO on a batched pixel-grid environment simulated on the GPU."""
import argparse
from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.distributions import Categorical


@dataclass
class PPOConfig:
    envs: int = 256
    horizon: int = 128
    epochs: int = 2
    minibatches: int = 64
    gamma: float = 0.99
    lam: float = 0.95
    clip: float = 0.2
    lr: float = 2.5e-4
    updates: int = 50


class CatchEnv:
    """A falling ball and a paddle, rendered at 84x84 with the last 4 frames stacked (uint8)."""

    def __init__(self, n, device):
        self.n, self.device = n, device
        self.ball = torch.zeros(n, 2, device=device)
        self.paddle = torch.full((n,), 42.0, device=device)
        self.frames = torch.zeros(n, 4, 84, 84, dtype=torch.uint8, device=device)
        self.cols = torch.arange(84, device=device)

    def step(self, action):
        self.paddle = (self.paddle + (action - 1) * 4).clamp(0, 83)
        self.ball[:, 0] += 3
        done = self.ball[:, 0] >= 83
        reward = torch.where(done, ((self.ball[:, 1] - self.paddle).abs() < 8).float() * 2 - 1, 0.0)
        self.ball[done, 0] = 0
        self.ball[done, 1] = torch.randint(0, 84, (int(done.sum()),), device=self.device).float()
        row = (self.cols[None] - self.ball[:, :1]).abs() < 2
        col = (self.cols[None] - self.ball[:, 1:]).abs() < 2
        img = (row[:, :, None] & col[:, None, :]).byte() * 255
        img[:, -2:] = ((self.cols[None] - self.paddle[:, None]).abs() < 6).byte()[:, None] * 200
        self.frames = torch.cat([self.frames[:, 1:], img[:, None]], dim=1)
        return self.frames, reward, done.float()


class ActorCritic(nn.Module):
    def __init__(self, actions=3):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(4, 32, 8, stride=4), nn.ReLU(), nn.Conv2d(32, 64, 4, stride=2), nn.ReLU(),
            nn.Conv2d(64, 64, 3), nn.ReLU(), nn.Flatten(), nn.Linear(3136, 512), nn.ReLU())
        self.pi, self.v = nn.Linear(512, actions), nn.Linear(512, 1)

    def forward(self, obs):
        h = self.body(obs.float() / 255)
        return Categorical(logits=self.pi(h)), self.v(h).squeeze(-1)


class Rollout:
    def __init__(self, cfg, device):
        shape = (cfg.horizon, cfg.envs)
        self.obs = torch.zeros(*shape, 4, 84, 84, dtype=torch.uint8, device=device)
        self.actions = torch.zeros(shape, dtype=torch.long, device=device)
        self.logp, self.rewards, self.dones, self.values = (torch.zeros(shape, device=device) for _ in range(4))


def collect(env, net, obs, cfg, device):
    buf = Rollout(cfg, device)
    for t in range(cfg.horizon):
        dist, value = net(obs)
        action = dist.sample()
        buf.obs[t], buf.actions[t] = obs, action
        buf.logp[t] = dist.log_prob(action)  # HERE
        buf.values[t] = value.detach()
        obs, buf.rewards[t], buf.dones[t] = env.step(action)
    with torch.no_grad():
        nxt, gae, adv = net(obs)[1], 0.0, torch.zeros_like(buf.rewards)
        for t in reversed(range(cfg.horizon)):
            alive = 1 - buf.dones[t]
            delta = buf.rewards[t] + cfg.gamma * nxt * alive - buf.values[t]
            gae = delta + cfg.gamma * cfg.lam * alive * gae
            adv[t], nxt = gae, buf.values[t]
    return buf, adv, obs


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--envs", type=int, default=256)
    ap.add_argument("--updates", type=int, default=50)
    a = ap.parse_args()
    cfg, device = PPOConfig(envs=a.envs, updates=a.updates), torch.device("cuda")
    env, net = CatchEnv(cfg.envs, device), ActorCritic().to(device)
    opt = torch.optim.Adam(net.parameters(), lr=cfg.lr, eps=1e-5)
    obs = env.frames
    for update in range(cfg.updates):
        buf, adv, obs = collect(env, net, obs, cfg, device)
        ret = (adv + buf.values).flatten()
        o, act, old, adv = buf.obs.flatten(0, 1), buf.actions.flatten(), buf.logp.flatten(), adv.flatten()
        for _ in range(cfg.epochs):
            for idx in torch.randperm(len(act), device=device).chunk(cfg.minibatches):
                dist, v = net(o[idx])
                ratio = (dist.log_prob(act[idx]) - old[idx].detach()).exp()
                ga = (adv[idx] - adv[idx].mean()) / (adv[idx].std() + 1e-8)
                pg = -torch.min(ratio * ga, ratio.clamp(1 - cfg.clip, 1 + cfg.clip) * ga).mean()
                loss = pg + 0.5 * (v - ret[idx]).pow(2).mean() - 0.01 * dist.entropy().mean()
                opt.zero_grad()
                loss.backward()
                opt.step()
        print(f"update {update} reward {buf.rewards.sum().item() / cfg.envs:.3f} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
