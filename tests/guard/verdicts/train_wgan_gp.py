"""WGAN with a lazily applied gradient penalty on 64 px textures."""
import argparse

import torch
from torch import nn


class Generator(nn.Module):
    def __init__(self, latent=64, width=64):
        super().__init__()
        self.latent = latent
        self.net = nn.Sequential(
            nn.Linear(latent, width * 4 * 64), nn.Unflatten(1, (width * 4, 8, 8)), nn.ReLU(),
            nn.ConvTranspose2d(width * 4, width * 2, 4, 2, 1), nn.ReLU(),
            nn.ConvTranspose2d(width * 2, width, 4, 2, 1), nn.ReLU(),
            nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Tanh(),
        )

    def forward(self, z):
        return self.net(z)


class Critic(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, width, 4, 2, 1), nn.LeakyReLU(0.2),
            nn.Conv2d(width, width * 2, 4, 2, 1), nn.LeakyReLU(0.2),
            nn.Conv2d(width * 2, width * 4, 4, 2, 1), nn.LeakyReLU(0.2),
            nn.Flatten(), nn.Linear(width * 4 * 64, 1),
        )

    def forward(self, x):
        return self.net(x).squeeze(1)


class Meter:
    """Mean of a quantity over an epoch."""

    def __init__(self):
        self.total, self.count = 0.0, 0

    def update(self, value):
        self.total = self.total + value  # HERE
        self.count += 1

    def mean(self):
        return float(self.total) / max(self.count, 1)


def sample_textures(count, device):
    phase = torch.rand(count, 3, 1, 1, device=device) * 6.28
    grid = torch.linspace(0, 12, 64, device=device)
    return torch.sin(grid.view(1, 1, 1, 64) + phase) * torch.cos(grid.view(1, 1, 64, 1))


def gradient_penalty(critic, real, fake):
    mix = torch.rand(len(real), 1, 1, 1, device=real.device)
    point = (mix * real + (1 - mix) * fake).requires_grad_(True)
    score = critic(point).sum()
    (grad,) = torch.autograd.grad(score, point, create_graph=True)
    return ((grad.flatten(1).norm(dim=1) - 1) ** 2).mean()


class Trainer:
    def __init__(self, args, device):
        self.args, self.device = args, device
        self.gen, self.critic = Generator().to(device), Critic().to(device)
        self.opt_g = torch.optim.Adam(self.gen.parameters(), 1e-4, betas=(0.5, 0.9))
        self.opt_c = torch.optim.Adam(self.critic.parameters(), 1e-4, betas=(0.5, 0.9))
        self.distance, self.penalty = Meter(), Meter()

    def noise(self):
        return torch.randn(self.args.batch, self.gen.latent, device=self.device)

    def critic_step(self, step):
        real = sample_textures(self.args.batch, self.device)
        fake = self.gen(self.noise()).detach()
        loss = self.critic(fake).mean() - self.critic(real).mean()
        self.distance.update(-loss.item())
        penalty = gradient_penalty(self.critic, real, fake)
        self.penalty.update(penalty)
        if step % self.args.lazy == 0:
            loss = loss + 10.0 * self.args.lazy * penalty
        self.opt_c.zero_grad()
        loss.backward()
        self.opt_c.step()

    def generator_step(self):
        loss = -self.critic(self.gen(self.noise())).mean()
        self.opt_g.zero_grad()
        loss.backward()
        self.opt_g.step()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--lazy", type=int, default=16)
    args = parser.parse_args()
    torch.manual_seed(3)
    trainer = Trainer(args, torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    for step in range(args.steps):
        trainer.critic_step(step)
        if step % 5 == 4:
            trainer.generator_step()
            print(f"step {step} w-distance {trainer.distance.mean():.4f} penalty {trainer.penalty.mean():.4f}", flush=True)


if __name__ == "__main__":
    main()
