# PPO on a batched "catch the ball with a paddle" game that runs on the GPU.
# Follows the structure of the usual single-file implementations.
import dataclasses
import time

import torch
import torch.nn as nn
import torch.optim as optim
from torch.distributions import Categorical


@dataclasses.dataclass
class Args:
    num_envs: int = 256
    num_steps: int = 128
    total_updates: int = 50
    num_minibatches: int = 32
    update_epochs: int = 2
    gamma: float = 0.99
    lam: float = 0.95
    clip: float = 0.1
    ent_coef: float = 0.01
    vf_coef: float = 0.5
    lr: float = 2.5e-4


class PaddleEnv:
    def __init__(self, n, device):
        self.n, self.device = n, device
        self.frames = torch.zeros(n, 4, 84, 84, device=device, dtype=torch.uint8)
        self.ball = torch.zeros(n, 2, device=device, dtype=torch.long)
        self.paddle = torch.full((n,), 42, device=device)
        self.restart(torch.ones(n, device=device, dtype=torch.bool))

    def restart(self, mask):
        self.ball[mask, 0] = 0
        self.ball[mask, 1] = torch.randint(2, 82, (int(mask.sum()),), device=self.device)

    def step(self, action):
        self.paddle = (self.paddle + 3 * (action - 1)).clamp(4, 79)
        self.ball[:, 0] += 3
        done = self.ball[:, 0] >= 81
        hit = (self.ball[:, 1] - self.paddle).abs() <= 5
        reward = torch.where(done, torch.where(hit, 1.0, -1.0), 0.0)
        self.restart(done)
        frame = torch.zeros(self.n, 84, 84, device=self.device, dtype=torch.uint8)
        rows = torch.arange(self.n, device=self.device)
        frame[rows, self.ball[:, 0], self.ball[:, 1]] = 255
        for dx in range(-4, 5):
            frame[rows, 82, self.paddle + dx] = 255
        self.frames = torch.cat([self.frames[:, 1:], frame[:, None]], dim=1)
        return self.frames, reward, done.float()


class Agent(nn.Module):
    def __init__(self, actions=3):
        super().__init__()
        self.network = nn.Sequential(
            nn.Conv2d(4, 32, 8, stride=4), nn.ReLU(),
            nn.Conv2d(32, 64, 4, stride=2), nn.ReLU(),
            nn.Conv2d(64, 64, 3, stride=1), nn.ReLU(),
            nn.Flatten(), nn.Linear(64 * 7 * 7, 512), nn.ReLU(),
        )
        self.actor = nn.Linear(512, actions)
        self.critic = nn.Linear(512, 1)

    def get_action_and_value(self, obs, action=None):
        hidden = self.network(obs.float() / 255.0)
        dist = Categorical(logits=self.actor(hidden))
        if action is None:
            action = dist.sample()
        return action, dist.log_prob(action), dist.entropy(), self.critic(hidden).squeeze(-1)


if __name__ == "__main__":
    args = Args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(1)
    env = PaddleEnv(args.num_envs, device)
    agent = Agent().to(device)
    optimizer = optim.Adam(agent.parameters(), lr=args.lr, eps=1e-5)
    next_obs, next_done = env.frames, torch.zeros(args.num_envs, device=device)

    for update in range(args.total_updates):
        t0 = time.time()
        obs, actions, logprobs, rewards, dones, values = [], [], [], [], [], []
        for step in range(args.num_steps):
            obs.append(next_obs)
            dones.append(next_done)
            action, logprob, _, value = agent.get_action_and_value(next_obs)  # HERE
            actions.append(action)
            logprobs.append(logprob)  # HERE
            values.append(value)  # HERE
            next_obs, reward, next_done = env.step(action)
            rewards.append(reward)
            if step % 16 == 0:
                print(f"update {update} step {step} mean reward {reward.mean().item():+.3f}", flush=True)

        with torch.no_grad():
            next_value = agent.get_action_and_value(next_obs)[3]
            advantages, gae = [None] * args.num_steps, 0.0
            for t in reversed(range(args.num_steps)):
                nonterminal = 1.0 - (next_done if t == args.num_steps - 1 else dones[t + 1])
                following = next_value if t == args.num_steps - 1 else values[t + 1]
                delta = rewards[t] + args.gamma * following * nonterminal - values[t]
                gae = delta + args.gamma * args.lam * nonterminal * gae
                advantages[t] = gae
            b_obs, b_act = torch.cat(obs), torch.cat(actions)
            b_logp, b_adv = torch.cat(logprobs), torch.cat(advantages)
            b_ret = b_adv + torch.cat(values)

        for _ in range(args.update_epochs):
            for idx in torch.randperm(len(b_act), device=device).chunk(args.num_minibatches):
                _, logp, entropy, value = agent.get_action_and_value(b_obs[idx], b_act[idx])
                ratio = (logp - b_logp[idx]).exp()
                adv = (b_adv[idx] - b_adv[idx].mean()) / (b_adv[idx].std() + 1e-8)
                pg = torch.max(-adv * ratio, -adv * ratio.clamp(1 - args.clip, 1 + args.clip)).mean()
                loss = pg - args.ent_coef * entropy.mean() + args.vf_coef * (value - b_ret[idx]).pow(2).mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
        print(f"update {update}: return {b_ret.mean().item():.3f}  {time.time() - t0:.1f}s", flush=True)
