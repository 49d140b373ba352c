import torch
import torch.nn as nn


class RoundSTE(torch.autograd.Function):
    """round to 2^bits levels, gradient only where the output was not clipped"""

    @staticmethod
    def forward(ctx, x, bits):
        n = 2 ** bits - 1
        y = torch.clamp(torch.round(x * n) / n, 0, 1)
        ctx.y = y  # HERE
        return y

    @staticmethod
    def backward(ctx, g):
        inside = (ctx.y > 0) & (ctx.y < 1)
        return g * inside, None


class QBlock(nn.Module):
    def __init__(self, cin, cout, bits=4):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, padding=1)
        self.bits = bits

    def forward(self, x):
        return RoundSTE.apply(torch.sigmoid(self.conv(x)), self.bits)


def run(device="cuda", size=256, batch=32, iters=400):
    net = nn.Sequential(QBlock(3, 32), QBlock(32, 32), nn.Conv2d(32, 3, 1)).to(device)
    optim = torch.optim.Adam(net.parameters(), 1e-3)
    for it in range(iters):
        clean = torch.rand(batch, 3, size, size, device=device)
        noisy = clean + 0.05 * torch.randn_like(clean)
        loss = (net(noisy) - clean).abs().mean()
        optim.zero_grad()
        loss.backward()
        optim.step()
        if it % 4 == 0:
            print(it, float(loss), flush=True)


if __name__ == "__main__":
    run()
