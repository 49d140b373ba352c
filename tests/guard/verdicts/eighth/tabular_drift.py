"""Credit default classifier with a Mahalanobis drift monitor on the penultimate features."""
import argparse
import logging
import time

import torch
from torch import nn
import torch.nn.functional as F

log = logging.getLogger("drift")


class DriftMonitor:
    """Keeps exponential estimates of feature mean / covariance and scores new batches."""

    def __init__(self, dim, momentum=0.98, eps=1e-2, device="cuda"):
        self.momentum = momentum
        self.eps = eps
        self.mean = torch.zeros(dim, device=device)
        self.cov = torch.eye(dim, device=device)

    def update(self, feats):
        m = self.momentum
        self.mean = m * self.mean + (1 - m) * feats.mean(dim=0)
        centered = feats - self.mean
        self.cov = m * self.cov + (1 - m) * (centered.t() @ centered) / feats.shape[0]  # HERE

    @torch.no_grad()
    def score(self, feats):
        eye = torch.eye(feats.shape[1], device=feats.device)
        chol = torch.linalg.cholesky(self.cov + self.eps * eye)
        z = torch.linalg.solve_triangular(chol, (feats - self.mean).t(), upper=False)
        return z.pow(2).sum(0).mean().item()


class TabularNet(nn.Module):
    def __init__(self, n_num, n_cat, vocab, emb, hidden, feat_dim):
        super().__init__()
        self.embs = nn.ModuleList([nn.Embedding(vocab, emb) for _ in range(n_cat)])
        self.trunk = nn.Sequential(
            nn.Linear(n_num + n_cat * emb, hidden), nn.BatchNorm1d(hidden), nn.ReLU(inplace=True),
            nn.Dropout(0.1),
            nn.Linear(hidden, hidden), nn.BatchNorm1d(hidden), nn.ReLU(inplace=True),
            nn.Linear(hidden, feat_dim),
        )
        self.head = nn.Linear(feat_dim, 1)

    def forward(self, num, cat):
        e = [emb(cat[:, i]) for i, emb in enumerate(self.embs)]
        feats = self.trunk(torch.cat([num] + e, dim=1))
        return self.head(torch.tanh(feats)).squeeze(1), feats


def sample_batch(n, n_num, n_cat, vocab, device):
    num = torch.randn(n, n_num, device=device)
    cat = torch.randint(0, vocab, (n, n_cat), device=device)
    y = ((num[:, :8].sum(1) + 0.01 * cat[:, 0]) > 0).float()
    return num, cat, y


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=2000)
    p.add_argument("--batch-size", type=int, default=1024)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--feat-dim", type=int, default=1024)
    p.add_argument("--score-every", type=int, default=20)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    device = torch.device("cuda")
    torch.manual_seed(7)

    model = TabularNet(64, 12, 500, 16, 1024, args.feat_dim).to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-4)
    monitor = DriftMonitor(args.feat_dim, device=device)

    t0 = time.time()
    for step in range(args.steps):
        num, cat, y = sample_batch(args.batch_size, 64, 12, 500, device)
        logits, feats = model(num, cat)
        loss = F.binary_cross_entropy_with_logits(logits, y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        monitor.update(feats)
        if step % args.score_every == 0:
            log.info("step %d loss %.4f drift %.2f (%.1fs)", step, loss.item(),
                     monitor.score(feats), time.time() - t0)


if __name__ == "__main__":
    main()
