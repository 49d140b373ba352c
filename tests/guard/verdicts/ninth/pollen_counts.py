"""Counts pollen grains: slides are rendered with JAX (jit, vmap), the counting network is torchvision's."""
import argparse

import jax
import jax.numpy as jnp
import numpy as np
import torch
import torch.nn.functional as F
import torchvision


def render_one(key, size, grains):
    """One slide with up to `grains` bright discs, and how many there are."""
    place, radius, number, noise = jax.random.split(key, 4)
    axis = jnp.linspace(0, 1, size)
    centre = jax.random.uniform(place, (grains, 2))
    width = 0.02 + 0.03 * jax.random.uniform(radius, (grains,))
    count = jax.random.randint(number, (), 1, grains + 1)

    def add(i, slide):
        d2 = (axis[None, :] - centre[i, 0]) ** 2 + (axis[:, None] - centre[i, 1]) ** 2
        return slide + jnp.where(i < count, jnp.exp(-d2 / width[i] ** 2), 0.0)

    slide = jax.lax.fori_loop(0, grains, add, jnp.zeros((size, size)))
    return slide + 0.05 * jax.random.normal(noise, (size, size)), count.astype(jnp.float32)


class SlideRenderer:
    def __init__(self, size, grains, seed):
        self.key = jax.random.key(seed)  # HERE
        self.render = jax.jit(jax.vmap(lambda key: render_one(key, size, grains)))

    def batch(self, count):
        self.key, sub = jax.random.split(self.key)
        slides, counts = self.render(jax.random.split(sub, count))
        return torch.from_numpy(np.array(slides)), torch.from_numpy(np.array(counts))


class Counter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torchvision.models.resnet18(weights=None, num_classes=1)
        self.body.conv1 = torch.nn.Conv2d(1, 64, 7, 2, 3, bias=False)

    def forward(self, slides):
        return self.body(slides[:, None]).squeeze(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=160)
    parser.add_argument("--grains", type=int, default=20)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--lr", type=float, default=3e-4)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"

    renderer = SlideRenderer(args.size, args.grains, seed=0)
    held_out = renderer.batch(args.batch)
    model = Counter().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    for step in range(args.steps):
        slides, counts = renderer.batch(args.batch)
        loss = F.smooth_l1_loss(model(slides.to(device)), counts.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            model.eval()
            with torch.no_grad():
                error = (model(held_out[0].to(device)).cpu() - held_out[1]).abs().mean()
            model.train()
            print(f"step {step} loss {loss.item():.3f} held-out error {error:.2f} grains", flush=True)


if __name__ == "__main__":
    main()
