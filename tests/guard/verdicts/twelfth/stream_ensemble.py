"""An ensemble of 48 small regressors for sensor drift, each trained on a CUDA stream of its own."""
import torch
from torch import nn

MEMBERS, FEATURES, HIDDEN, BATCH = 48, 512, 256, 1024
dev = torch.device("cuda")


class Member:
    """Network, optimizer and stream of one member of the ensemble."""

    def __init__(self, number):
        torch.manual_seed(number)
        self.net = nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(),
                                 nn.Linear(HIDDEN, 1)).to(dev)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.01)
        self.stream = torch.cuda.Stream(priority=-(number % 2))  # HERE
        self.gen = torch.Generator(device=dev).manual_seed(number)

    def step(self, x, y):
        self.stream.wait_stream(torch.cuda.default_stream())
        with torch.cuda.stream(self.stream):  # HERE
            rows = torch.randint(0, len(x), (BATCH,), device=dev, generator=self.gen)
            loss = nn.functional.mse_loss(self.net(x[rows])[:, 0], y[rows])
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            self.loss = loss.detach()

    @torch.no_grad()
    def predict(self, x):
        return self.net(x)[:, 0]


def sensor_data(n=100_000):
    gen = torch.Generator(device=dev).manual_seed(9)
    x = torch.randn(n, FEATURES, device=dev, generator=gen)
    drift = x[:, :8].cumsum(1).sum(1)
    return x, torch.tanh(drift / 10) + 0.05 * torch.randn(n, device=dev, generator=gen)


def spread(members, x):
    outputs = torch.stack([m.predict(x[:2048]) for m in members])
    return outputs.mean(0), outputs.std(0)


def main():
    x, y = sensor_data()
    print(f"data {x.numel() * 4 / 2 ** 20:.0f} MiB", flush=True)
    members = []
    for number in range(MEMBERS):
        member = Member(number)
        for _ in range(20):
            member.step(x, y)
        members.append(member)
        if number % 8 == 0:
            torch.cuda.synchronize()
            print(f"member {number} loss {member.loss.item():.4f}", flush=True)
    torch.cuda.synchronize()
    mean, std = spread(members, x)
    print(f"error {(mean - y[:2048]).abs().mean():.4f} spread {std.mean():.4f}")


if __name__ == "__main__":
    main()
