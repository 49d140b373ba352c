import argparse
import numpy as np
import torch


class GaussianProcess:
    def __init__(self, lengthscale=0.8, noise=1e-1):
        self.ls, self.noise = lengthscale, noise

    def kernel(self, a, b):
        d2 = torch.cdist(a, b) ** 2
        return torch.exp(-0.5 * d2 / self.ls ** 2)

    def fit(self, x, y):
        k = self.kernel(x, x)
        k = k + self.noise * torch.eye(len(x), dtype=x.dtype, device=x.device)
        self.x = x
        self.chol = torch.linalg.cholesky(k)
        self.alpha = torch.cholesky_solve(y[:, None], self.chol)
        return self

    def predict(self, xs):
        return (self.kernel(xs, self.x) @ self.alpha).squeeze(1)


def sensor_data(n, seed):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-3, 3, size=(n, 6))
    y = np.sin(x).sum(1) + 0.1 * rng.standard_normal(n)
    return x, y


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--n", type=int, default=16000)
    p.add_argument("--device", default="cuda")
    a = p.parse_args()
    x, y = sensor_data(a.n, 0)
    x, y = torch.from_numpy(x).to(a.device), torch.from_numpy(y).to(a.device)  # HERE
    gp = GaussianProcess().fit(x, y)
    xs, ys = sensor_data(1000, 1)
    pred = gp.predict(torch.from_numpy(xs).to(a.device)).cpu().numpy()
    print("rmse", np.sqrt(np.mean((pred - ys) ** 2)))


if __name__ == "__main__":
    main()
