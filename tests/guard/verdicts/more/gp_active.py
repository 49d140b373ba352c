"""Active learning of an expensive simulator with an exact Gaussian process.

Each round: fit hyper-parameters, score a pool of candidates by predictive
variance, run the simulator on the best ones, add them to the design.
"""
import torch
import torch.nn.functional as F

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DIM = 6
START = 1500
PER_ROUND = 500
ROUNDS = 80
FIT_ITERS = 8
POOL = 4000


def simulator(x):
    """Stand-in for the real code: a bumpy function of six inputs, slightly noisy."""
    y = torch.sin(3.0 * x[:, 0]) * torch.cos(2.0 * x[:, 1])
    y = y + 0.5 * (x[:, 2] - 0.3).pow(2) + torch.exp(-4.0 * (x[:, 3] - x[:, 4]).pow(2))
    y = y + 0.2 * torch.sin(8.0 * x[:, 5])
    return y + 0.02 * torch.randn_like(y)


class ExactGP(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.raw_length = torch.nn.Parameter(torch.zeros(dim))
        self.raw_scale = torch.nn.Parameter(torch.zeros(()))
        self.raw_noise = torch.nn.Parameter(torch.tensor(-2.0))

    @property
    def noise(self):
        return F.softplus(self.raw_noise) + 2e-2

    def kernel(self, a, b):
        length = F.softplus(self.raw_length)
        a, b = a / length, b / length
        sq = a.pow(2).sum(-1, keepdim=True) + b.pow(2).sum(-1) - 2.0 * (a @ b.T)
        return F.softplus(self.raw_scale) * torch.exp(-0.5 * sq.clamp_min(0))  # HERE

    def factor(self, x):
        k = self.kernel(x, x)
        k = k + self.noise * torch.eye(len(x), device=x.device)
        return torch.linalg.cholesky(k)

    def nll(self, x, y):
        chol = self.factor(x)
        alpha = torch.cholesky_solve(y[:, None], chol)[:, 0]
        logdet = 2.0 * torch.log(torch.diagonal(chol)).sum()
        return 0.5 * (y @ alpha + logdet) / len(x)

    @torch.no_grad()
    def variance(self, x, candidates):
        chol = self.factor(x)
        cross = self.kernel(x, candidates)
        v = torch.linalg.solve_triangular(chol, cross, upper=False)
        return F.softplus(self.raw_scale) - v.pow(2).sum(0)


def fit(gp, x, y, iters):
    opt = torch.optim.Adam(gp.parameters(), lr=0.05)
    for _ in range(iters):
        opt.zero_grad()
        loss = gp.nll(x, y)
        loss.backward()
        opt.step()
    return loss.item()


def main():
    torch.manual_seed(3)
    x = torch.rand(START, DIM, device=DEVICE)
    y = simulator(x)
    gp = ExactGP(DIM).to(DEVICE)

    for rnd in range(ROUNDS):
        mean, std = y.mean(), y.std()
        nll = fit(gp, x, (y - mean) / std, FIT_ITERS)
        pool = torch.rand(POOL, DIM, device=DEVICE)
        var = gp.variance(x, pool)
        best = var.topk(PER_ROUND).indices
        new = pool[best]
        print(f"round {rnd:2d}  design {len(x):6d}  nll {nll:.4f}  "
              f"largest variance {var.max().item():.4f}  noise {gp.noise.item():.4f}", flush=True)
        x = torch.cat([x, new])  # HERE
        y = torch.cat([y, simulator(new)])

    print("lengthscales", F.softplus(gp.raw_length).tolist())


if __name__ == "__main__":
    main()
