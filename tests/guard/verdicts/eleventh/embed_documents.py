"""Project documents of different lengths; keep the half-precision projection of each for the search stage."""
import torch

MIB = 2 ** 20
WIDTH = 1024


def document_lengths(n=28):
    """Rows per document."""
    lengths = [(200 + 4 * i) * MIB // (WIDTH * 4) for i in range(n)]
    g = torch.Generator().manual_seed(0)
    order = torch.randperm(n, generator=g).tolist()
    return [lengths[i] for i in order]


class Projector:
    def __init__(self, n_in=16, device="cuda"):
        torch.manual_seed(0)
        self.device = device
        self.weight = torch.randn(n_in, WIDTH, device=device) / n_in ** 0.5

    @torch.no_grad()
    def __call__(self, doc):
        full = doc.to(self.device) @ self.weight
        full.tanh_()
        return full.half()


def main():
    lengths = document_lengths()
    docs = [torch.randn(n, 16) for n in lengths]
    project = Projector()
    index = {}
    by_length = sorted(range(len(docs)), key=lambda i: lengths[i])  # HERE
    for k, i in enumerate(by_length):
        index[i] = project(docs[i])
        print(f"{k:2d} document {i:2d}: {lengths[i]} rows, "
              f"{torch.cuda.memory_allocated() / MIB:.0f} MiB in the index", flush=True)

    query = torch.randn(WIDTH, device="cuda", dtype=torch.float16)
    best = max(index, key=lambda i: (index[i] @ query).max().item())
    print("best document", best)


if __name__ == "__main__":
    main()
