"""PPO on a grid of mines seen as 64 px frames, many environments at once."""
import argparse

import torch
import torch.nn.functional as F
from torch import nn


class Mines:
    """The agent walks on a torus; ore is worth one, a mine ends the episode."""

    def __init__(self, count, cells=16, seed=0):
        self.gen = torch.Generator().manual_seed(seed)
        self.count, self.cells = count, cells
        self.ore = torch.rand(count, cells, cells, generator=self.gen) < 0.15
        self.mine = torch.rand(count, cells, cells, generator=self.gen) < 0.05
        self.at = torch.randint(cells, (count, 2), generator=self.gen)

    def frame(self):
        agent = torch.zeros(self.count, self.cells, self.cells)
        agent[torch.arange(self.count), self.at[:, 0], self.at[:, 1]] = 1
        planes = torch.stack([agent, self.ore.float(), self.mine.float()], 1)
        return F.interpolate(planes, scale_factor=4)

    def step(self, action):
        moves = torch.tensor([[0, 1], [0, -1], [1, 0], [-1, 0]])
        self.at = (self.at + moves[action]) % self.cells
        row = torch.arange(self.count)
        reward = self.ore[row, self.at[:, 0], self.at[:, 1]].float()
        done = self.mine[row, self.at[:, 0], self.at[:, 1]].float()
        self.ore[row, self.at[:, 0], self.at[:, 1]] = False
        return self.frame(), reward - done, done


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 32, 5, 2, 2), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(),
            nn.Conv2d(64, 64, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(64 * 64, 256), nn.ReLU(),
        )
        self.policy, self.value = nn.Linear(256, 4), nn.Linear(256, 1)

    def forward(self, frame):
        h = self.body(frame)
        return torch.distributions.Categorical(logits=self.policy(h)), self.value(h).squeeze(-1)


class Rollout:
    def __init__(self):
        self.frames, self.actions, self.log_probs, self.values = [], [], [], []
        self.rewards, self.dones = [], []

    def add(self, frame, action, log_prob, value, reward, done):
        self.frames.append(frame)
        self.actions.append(action)
        self.log_probs.append(log_prob)  # HERE
        self.values.append(value)  # HERE
        self.rewards.append(reward)
        self.dones.append(done)

    def returns(self, last, gamma=0.99, lam=0.95):
        advantage, total = 0.0, []
        values = self.values + [last]
        for t in reversed(range(len(self.rewards))):
            live = 1 - self.dones[t]
            delta = self.rewards[t] + gamma * values[t + 1].detach() * live - values[t].detach()
            advantage = delta + gamma * lam * live * advantage
            total.append(advantage + values[t].detach())
        return torch.stack(total[::-1])


def collect(env, agent, frame, length, device):
    rollout = Rollout()
    for _ in range(length):
        dist, value = agent(frame)
        action = dist.sample()
        after, reward, done = env.step(action.cpu())
        rollout.add(frame.cpu(), action, dist.log_prob(action), value, reward.to(device), done.to(device))
        frame = after.to(device)
    return rollout, frame


def update(agent, optimizer, rollout, returns, device, clip=0.2):
    for t in torch.randperm(len(rollout.frames)).tolist():
        dist, value = agent(rollout.frames[t].to(device))
        advantage = returns[t] - rollout.values[t].detach()
        ratio = (dist.log_prob(rollout.actions[t]) - rollout.log_probs[t].detach()).exp()
        gain = torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)
        loss = -gain.mean() + 0.5 * F.mse_loss(value, returns[t]) - 0.01 * dist.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--envs", type=int, default=256)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--iterations", type=int, default=20)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    env, agent = Mines(args.envs), ActorCritic().to(device)
    optimizer = torch.optim.Adam(agent.parameters(), lr=3e-4)
    frame = env.frame().to(device)
    for iteration in range(args.iterations):
        rollout, frame = collect(env, agent, frame, args.length, device)
        with torch.no_grad():
            returns = rollout.returns(agent(frame)[1])
        loss = update(agent, optimizer, rollout, returns, device)
        reward = torch.stack(rollout.rewards).sum(0).mean().item()
        print(f"iteration {iteration} reward {reward:.2f} loss {loss:.3f}", flush=True)


if __name__ == "__main__":
    main()
