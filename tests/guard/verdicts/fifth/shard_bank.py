"""Load embedding shards of an archive to the GPU in half precision, then query them."""
import time
import numpy as np
import torch

DIM = 1024
N_SHARDS = 44
FIRST_ROWS = 40_000


def read_shard(i):
    # each month of the archive is a bit bigger than the one before
    rows = int(FIRST_ROWS * (1 + 0.01 * i))
    rng = np.random.default_rng(i)
    return rng.standard_normal((rows, DIM), dtype=np.float32)


def to_bank(arr):
    x = torch.from_numpy(arr).cuda()  # HERE
    x.div_(x.norm(dim=1, keepdim=True))
    return x.half()  # HERE


def search(bank, queries, k=10):
    best_s = torch.full((len(queries), k), -1.0, device="cuda", dtype=torch.half)
    best_i = torch.zeros((len(queries), k), device="cuda", dtype=torch.long)
    start = 0
    for shard in bank:
        s, i = (queries @ shard.T).topk(k, dim=1)
        cat_s, cat_i = torch.cat([best_s, s], 1), torch.cat([best_i, i + start], 1)
        best_s, order = cat_s.topk(k, dim=1)
        best_i = cat_i.gather(1, order)
        start += len(shard)
    return best_s, best_i


def main():
    t0 = time.time()
    bank = []
    for i in range(N_SHARDS):
        bank.append(to_bank(read_shard(i)))
        print(f"shard {i:02d}: {len(bank[-1])} rows, {time.time() - t0:.1f}s", flush=True)
    total = sum(len(b) for b in bank)
    print(f"{total} vectors in the bank")

    for r in range(100):
        q = torch.nn.functional.normalize(torch.randn(64, DIM, device="cuda"), dim=1).half()
        scores, ids = search(bank, q)
    print("mean top-1 score", scores[:, 0].float().mean().item(), "example ids", ids[0].tolist())


if __name__ == "__main__":
    main()
