# DQN on a tiny "catch the dot" game rendered at 84x84, 4 stacked frames
import random
from collections import deque
import torch
import torch.nn as nn
import torch.nn.functional as F

device = "cuda"


class Catch:
    def reset(self):
        self.x, self.y, self.p = random.randrange(84), 0, 42
        self.frames = deque([self._draw()] * 4, maxlen=4)
        return self._obs()

    def _draw(self):
        f = torch.zeros(84, 84)
        f[min(self.y, 83), self.x] = 1.0
        f[82:, max(0, self.p - 4):self.p + 4] = 1.0
        return f

    def _obs(self):
        return torch.stack(list(self.frames))

    def step(self, a):
        self.p = min(80, max(4, self.p + (a - 1) * 4))
        self.y += 2
        self.frames.append(self._draw())
        done = self.y >= 82
        return self._obs(), float(done and abs(self.p - self.x) < 5), done


class QNet(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(),
                         nn.Flatten(), nn.Linear(64 * 81, 256), nn.ReLU(), nn.Linear(256, 3))


q, target = QNet().to(device), QNet().to(device)
target.load_state_dict(q.state_dict())
opt = torch.optim.Adam(q.parameters(), lr=1e-4)
memory = deque(maxlen=100_000)
env, eps = Catch(), 1.0
state = env.reset().to(device)

for t in range(200_000):
    if random.random() < eps:
        action = random.randrange(3)
    else:
        with torch.no_grad():
            action = q(state[None]).argmax(1).item()
    nxt, reward, done = env.step(action)
    nxt = nxt.to(device)
    memory.append((state, action, reward, nxt, done))  # HERE
    state = env.reset().to(device) if done else nxt
    eps = max(0.05, eps * 0.9997)
    if t > 1000 and t % 8 == 0:
        s, a, r, s2, d = zip(*random.sample(memory, 64))
        s, s2 = torch.stack(s), torch.stack(s2)
        a, r, d = (torch.tensor(v, device=device) for v in (a, r, d))
        with torch.no_grad():
            y = r + 0.99 * target(s2).amax(1) * (~d)
        loss = F.smooth_l1_loss(q(s).gather(1, a[:, None]).squeeze(1), y)
        opt.zero_grad(); loss.backward(); opt.step()
    if t % 2000 == 0:
        target.load_state_dict(q.state_dict())
        print(f"step {t} eps {eps:.2f} stored {len(memory)}", flush=True)
