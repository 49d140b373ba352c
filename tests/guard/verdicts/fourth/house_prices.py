import torch
import torch.nn as nn

torch.manual_seed(1)
device = "cuda"
n, d = 40_000, 64
X = torch.randn(n, d)
w_true = torch.randn(d)
y = X @ w_true + 0.1 * torch.randn(n)
X, y = X.to(device), y.to(device)

model = nn.Sequential(
    nn.Linear(d, 256), nn.ReLU(),
    nn.Linear(256, 256), nn.ReLU(),
    nn.Linear(256, 1),
).to(device)
opt = torch.optim.Adam(model.parameters(), lr=1e-3)

for epoch in range(200):
    pred = model(X)
    loss = ((pred - y) ** 2).mean()  # HERE
    opt.zero_grad()
    loss.backward()
    opt.step()
    if epoch % 20 == 0:
        print(epoch, loss.item())
