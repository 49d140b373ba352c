"""Monte Carlo prices of Asian and European calls for a book of underlyings, then the book's joint risk, with CuPy."""
import argparse
from dataclasses import dataclass

import cupy as cp
import numpy as np


@dataclass
class Underlying:
    name: str
    spot: float
    drift: float
    volatility: float


def make_book(count, seed=0):
    rng = np.random.default_rng(seed)
    return [
        Underlying(f"U{i:02d}", float(rng.uniform(50, 150)), 0.02, float(rng.uniform(0.1, 0.5))) for i in range(count)
    ]


class Simulator:
    def __init__(self, paths, days, seed=0):
        self.paths, self.days = paths, days
        self.market = cp.random.RandomState(seed).standard_normal((1, days))
        self.random = cp.random.RandomState(seed + 1)

    def run(self, u):
        dt = 1 / 252
        z = self.random.standard_normal((self.paths, self.days))
        z *= np.sqrt(0.7)
        z += np.sqrt(0.3) * self.market
        z *= u.volatility * np.sqrt(dt)
        z += (u.drift - 0.5 * u.volatility ** 2) * dt
        z = cp.cumsum(z, axis=1)
        cp.exp(z, out=z)
        z *= u.spot
        return z


def call_price(values, strike, rate=0.02):
    return float(np.exp(-rate) * cp.maximum(values - strike, 0).mean())


def joint_risk(final):
    """Correlations of the final prices and the loss that one day in a hundred exceeds."""
    table = cp.stack(list(final.values()))
    correlation = cp.corrcoef(table)
    total = table.sum(0)
    return float(correlation.mean()), float(total.mean() - cp.percentile(total, 1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--underlyings", type=int, default=60)
    parser.add_argument("--paths", type=int, default=120_000)
    parser.add_argument("--days", type=int, default=252)
    args = parser.parse_args()
    simulator = Simulator(args.paths, args.days)
    final = {}
    for u in make_book(args.underlyings):
        prices = simulator.run(u)
        european = call_price(prices[:, -1], u.spot)
        asian = call_price(prices.mean(axis=1), u.spot)
        final[u.name] = prices[:, -1]  # HERE
        print(f"{u.name}: european {european:.2f} asian {asian:.2f}", flush=True)
    mean_correlation, loss = joint_risk(final)
    print(f"mean correlation {mean_correlation:.2f}, 1 % loss {loss:.1f}")


if __name__ == "__main__":
    main()
