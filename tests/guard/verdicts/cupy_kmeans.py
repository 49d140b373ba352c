"""k-means on the GPU with CuPy: a fit on a sample, then a refinement on all points."""
import argparse
import time

import cupy as cp
import numpy as np


def make_points(count, features, groups, seed=14):
    rng = np.random.default_rng(seed)
    centers = rng.normal(0, 4, (groups, features))
    which = rng.integers(0, groups, count)
    return centers[which] + rng.standard_normal((count, features))


class KMeans:
    def __init__(self, clusters, tolerance=1e-3, seed=0):
        self.clusters, self.tolerance = clusters, tolerance
        self.rng = np.random.default_rng(seed)
        self.centers = None

    def initialise(self, points):
        rows = self.rng.choice(len(points), self.clusters, replace=False)
        self.centers = points[cp.asarray(rows)].copy()

    def squared_distances(self, points):
        difference = points[:, None, :] - self.centers[None, :, :]  # HERE
        return (difference**2).sum(axis=2)

    def assign(self, points):
        distance = self.squared_distances(points)
        labels = distance.argmin(axis=1)
        return labels, float(distance.min(axis=1).mean())

    def update(self, points, labels):
        moved = 0.0
        for k in range(self.clusters):
            member = (labels == k).astype(points.dtype)
            count = float(member.sum())
            if count:
                center = (points * member[:, None]).sum(axis=0) / count
                moved = max(moved, float(cp.abs(center - self.centers[k]).max()))
                self.centers[k] = center
        return moved

    def fit(self, points, iterations, label):
        for i in range(iterations):
            labels, inertia = self.assign(points)
            moved = self.update(points, labels)
            print(f"{label} iteration {i}: mean squared distance {inertia:.4f}, moved {moved:.4f}", flush=True)
            if moved < self.tolerance:
                break
        return labels


def cluster_sizes(labels, clusters):
    host = cp.asnumpy(labels)
    return np.bincount(host, minlength=clusters)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--points", type=int, default=200_000)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--clusters", type=int, default=128)
    parser.add_argument("--sample", type=int, default=4000)
    args = parser.parse_args()
    start = time.time()
    points = cp.asarray(make_points(args.points, args.features, args.clusters))
    print(f"{points.shape[0]} points loaded after {time.time() - start:.1f} s", flush=True)

    model = KMeans(args.clusters)
    sample = points[:: max(1, args.points // args.sample)]
    model.initialise(sample)
    model.fit(sample, 3, "sample")
    labels = model.fit(points, 10, "full")
    print("smallest and largest cluster", cluster_sizes(labels, args.clusters)[[0, -1]], flush=True)


if __name__ == "__main__":
    main()
