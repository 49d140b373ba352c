"""Simulate trajectories of a pendulum chain in JAX, learn them with a PyTorch network."""
import jax
import jax.numpy as jnp
import numpy as np
import torch
import torch.nn as nn

STATE, STEPS, RUNS = 64, 32, 2048


@jax.jit
def simulate(theta, omega):
    def tick(carry, _):
        th, om = carry
        pull = jnp.roll(th, 1, axis=1) + jnp.roll(th, -1, axis=1) - 2 * th
        om = om + 0.05 * (pull - jnp.sin(th))
        th = th + 0.05 * om
        return (th, om), None

    (theta, omega), _ = jax.lax.scan(tick, (theta, omega), None, length=STEPS)
    return jnp.concatenate([theta, omega], axis=1)


class Surrogate(nn.Module):
    def __init__(self, width=4096, depth=18):
        super().__init__()
        self.inp = nn.Linear(2 * STATE, width)
        self.hidden = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.out = nn.Linear(width, 2 * STATE)

    def forward(self, x):
        h = torch.tanh(self.inp(x))
        for layer in self.hidden:
            h = h + torch.tanh(layer(h))
        return self.out(h)


def main():
    rng = np.random.default_rng(3)
    theta = rng.uniform(-1, 1, (RUNS, STATE)).astype(np.float32)
    omega = rng.normal(0, 0.1, (RUNS, STATE)).astype(np.float32)
    after = np.asarray(simulate(jnp.asarray(theta), jnp.asarray(omega)))  # HERE
    print("simulated", after.shape, "on", jax.devices()[0], flush=True)

    torch.manual_seed(0)
    net = Surrogate()
    net.hidden.requires_grad_(False)
    net.to("cuda")  # HERE
    opt = torch.optim.Adam(net.out.parameters(), lr=1e-3)
    x, y = torch.from_numpy(np.concatenate([theta, omega], axis=1)).cuda(), torch.tensor(after).cuda()
    for step in range(200):
        loss = nn.functional.mse_loss(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(f"step {step} mse {loss.item():.5f}", flush=True)


if __name__ == "__main__":
    main()
