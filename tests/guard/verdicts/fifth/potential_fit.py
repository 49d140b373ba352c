# Fit a small network to a potential energy surface, full batch
import numpy as np
import torch
import torch.nn as nn

N, D, H = 400_000, 512, 256
rng = np.random.default_rng(0)


def descriptors():
    x = rng.standard_normal((N, D))
    w = rng.standard_normal((D, 4)) / np.sqrt(D)
    e = np.sin(x @ w).sum(1) + 0.05 * (x[:, :32] ** 2).sum(1)
    return x, (e - e.mean()) / e.std()


print("building descriptors ...", flush=True)
data, energy = descriptors()
X = torch.from_numpy(data).cuda()  # HERE
y = torch.from_numpy(energy).cuda().unsqueeze(1)

net = nn.Sequential(
    nn.Linear(D, H), nn.Tanh(),
    nn.Linear(H, H), nn.Tanh(),
    nn.Linear(H, 1),
).cuda().double()  # HERE

opt = torch.optim.Adam(net.parameters(), lr=2e-3)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 300)
for it in range(300):
    opt.zero_grad()
    loss = nn.functional.mse_loss(net(X), y)
    loss.backward()
    opt.step()
    sched.step()
    if it % 20 == 0:
        print(f"iter {it:4d} rmse {loss.item() ** 0.5:.4f}", flush=True)

with torch.no_grad():
    err = (net(X[:50_000]) - y[:50_000]).abs().mean().item()
print("MAE on the first 50k structures:", err)
