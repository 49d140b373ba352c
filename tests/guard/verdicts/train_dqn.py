"""Double DQN on a batch of toy pixel games that run on the GPU."""
import argparse
import random
from collections import deque, namedtuple

import torch
import torch.nn.functional as F
from torch import nn

Transition = namedtuple("Transition", "state action reward next_state")


class PixelCatch:
    """Many games at once: a ball falls, a paddle moves left, stays or moves right."""

    def __init__(self, count, device, size=84):
        self.count, self.size, self.device = count, size, device
        self.rows = torch.arange(size, device=device).view(1, -1, 1)
        self.cols = torch.arange(size, device=device).view(1, 1, -1)
        self.ball = torch.randint(0, size, (count, 2), device=device)
        self.paddle = torch.full((count,), size // 2, device=device)
        self.stack = self.render().unsqueeze(1).repeat(1, 4, 1, 1)

    def render(self):
        ball = (self.rows - self.ball[:, :1, None]).abs() + (self.cols - self.ball[:, 1:, None]).abs() < 3
        paddle = (self.rows > self.size - 4) & ((self.cols - self.paddle.view(-1, 1, 1)).abs() < 8)
        return (ball | paddle).float()

    def step(self, action):
        self.paddle = (self.paddle + 3 * (action - 1)).clamp(0, self.size - 1)
        self.ball[:, 0] += 2
        landed = self.ball[:, 0] >= self.size
        caught = landed & ((self.ball[:, 1] - self.paddle).abs() < 8)
        self.ball[:, 0] %= self.size
        self.stack = torch.cat([self.stack[:, 1:], self.render().unsqueeze(1)], dim=1)
        return self.stack, caught.float() - (landed & ~caught).float()


class ReplayMemory:
    def __init__(self, capacity):
        self.buffer = deque(maxlen=capacity)

    def push(self, states, actions, rewards, next_states):
        for item in zip(states, actions, rewards, next_states):
            self.buffer.append(Transition(*item))  # HERE

    def sample(self, count):
        rows = random.sample(self.buffer, count)
        return Transition(*(torch.stack(column) for column in zip(*rows)))

    def __len__(self):
        return len(self.buffer)


class QNetwork(nn.Module):
    def __init__(self, actions=3):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(),
            nn.Conv2d(64, 64, 3, 1), nn.ReLU(), nn.Flatten(),
            nn.Linear(64 * 7 * 7, 256), nn.ReLU(), nn.Linear(256, actions),
        )

    def forward(self, x):
        return self.body(x)


def learn(online, target, optimizer, batch, gamma=0.99):
    value = online(batch.state).gather(1, batch.action.view(-1, 1)).squeeze(1)
    with torch.no_grad():
        best = online(batch.next_state).argmax(1, keepdim=True)
        goal = batch.reward + gamma * target(batch.next_state).gather(1, best).squeeze(1)
    loss = F.smooth_l1_loss(value, goal)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--games", type=int, default=128)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--capacity", type=int, default=100_000)
    args = parser.parse_args()
    torch.manual_seed(0)
    random.seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    env, memory = PixelCatch(args.games, device), ReplayMemory(args.capacity)
    online, target = QNetwork().to(device), QNetwork().to(device)
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), lr=1e-4)
    state = env.stack
    for step in range(args.steps):
        with torch.no_grad():
            greedy = online(state).argmax(1)
        explore = torch.rand(args.games, device=device) < 0.1
        action = torch.where(explore, torch.randint(0, 3, (args.games,), device=device), greedy)
        next_state, reward = env.step(action)
        memory.push(state, action, reward, next_state)
        state = next_state
        loss = learn(online, target, optimizer, memory.sample(64))
        if step % 20 == 0:
            target.load_state_dict(online.state_dict())
            print(f"step {step} replay {len(memory)} loss {loss:.4f} reward {reward.mean():.3f}", flush=True)


if __name__ == "__main__":
    main()
