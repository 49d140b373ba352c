import gc
import torch
import torch.nn as nn

gc.disable()  # HERE
N_ENV, T, OBS, ACT = 256, 128, 512, 8
dev = "cuda"


class Step:
    __slots__ = ("obs", "act", "logp", "rew", "rollout")


class Rollout:
    def __init__(self):
        self.steps = []

    def add(self, obs, act, logp, rew):
        s = Step()
        s.obs, s.act, s.logp, s.rew = obs, act, logp, rew
        s.rollout = self  # HERE
        self.steps.append(s)

    def returns(self, gamma=0.98):
        g, out = torch.zeros(N_ENV, device=dev), []
        for s in reversed(self.steps):
            g = s.rew + gamma * g
            out.append(g)
        return torch.stack(out[::-1])


policy = nn.Sequential(nn.Linear(OBS, 256), nn.Tanh(), nn.Linear(256, ACT)).to(dev)
log_std = nn.Parameter(torch.zeros(ACT, device=dev))
opt = torch.optim.Adam([*policy.parameters(), log_std], lr=3e-4)
sensor = torch.randn(ACT, OBS, device=dev)


def dist(obs):
    return torch.distributions.Normal(policy(obs), log_std.exp())


for it in range(1000):
    roll = Rollout()
    pos = torch.randn(N_ENV, ACT, device=dev)
    with torch.no_grad():
        for t in range(T):
            obs = torch.tanh(pos @ sensor + 0.01 * torch.randn(N_ENV, OBS, device=dev))
            d = dist(obs)
            act = d.sample()
            pos = pos + 0.1 * act
            roll.add(obs, act, d.log_prob(act).sum(-1), -pos.square().mean(-1))
    ret = roll.returns()
    adv = ((ret - ret.mean()) / (ret.std() + 1e-6)).flatten()
    obs = torch.cat([s.obs for s in roll.steps])
    act = torch.cat([s.act for s in roll.steps])
    logp_old = torch.cat([s.logp for s in roll.steps])
    for _ in range(4):
        for idx in torch.randperm(len(obs), device=dev).split(4096):
            ratio = (dist(obs[idx]).log_prob(act[idx]).sum(-1) - logp_old[idx]).exp()
            loss = -torch.min(ratio * adv[idx], ratio.clamp(0.8, 1.2) * adv[idx]).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
    print(f"iter {it} mean return {ret[0].mean().item():.3f}", flush=True)
