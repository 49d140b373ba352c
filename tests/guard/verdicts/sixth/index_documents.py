"""Build a token-level (late interaction) index of a document set on the GPU."""
import argparse
import time

import torch
import torch.nn as nn


class TokenEncoder(nn.Module):
    def __init__(self, vocab=8000, dim=512, out=8192):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.up = nn.Linear(dim, out, bias=False)

    def forward(self, ids):
        x = self.emb(ids)
        return torch.mm(x, self.up.weight.t()).relu_()


class Index:
    def __init__(self):
        self.docs = []
        self.ids = []

    def add(self, doc_id, vectors):
        self.ids.append(doc_id)
        self.docs.append(vectors)

    @property
    def nbytes(self):
        return sum(d.numel() * d.element_size() for d in self.docs)


def corpus(n, shortest, step, seed=0):
    g = torch.Generator().manual_seed(seed)
    lengths = [shortest + step * k for k in range(n)]
    order = torch.randperm(n, generator=g).tolist()
    return [(k, torch.randint(0, 8000, (lengths[k],), generator=g)) for k in order]


@torch.inference_mode()
def build(encoder, docs, device):
    index = Index()
    # short documents first, the progress bar is more truthful that way
    for k, (doc_id, ids) in enumerate(sorted(docs, key=lambda d: len(d[1]))):  # HERE
        vectors = encoder(ids.to(device))
        index.add(doc_id, vectors.half())  # HERE
        del vectors
        if k % 4 == 0:
            print(f"{k:3d} docs, {len(ids)} tokens, index {index.nbytes / 2**20:.0f} MiB",
                  flush=True)
    return index


@torch.inference_mode()
def search(encoder, index, query, device, top=5):
    q = encoder(query.to(device)).half()
    scores = [(torch.mm(d, q.t()).max(0).values.sum().item(), i)
              for d, i in zip(index.docs, index.ids)]
    return sorted(scores, reverse=True)[:top]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--docs", type=int, default=32)
    ap.add_argument("--shortest", type=int, default=1280)
    ap.add_argument("--step", type=int, default=256)
    args = ap.parse_args()
    torch.manual_seed(0)
    encoder = TokenEncoder().cuda().eval()
    docs = corpus(args.docs, args.shortest, args.step)
    start = time.time()
    index = build(encoder, docs, "cuda")
    print(f"built in {time.time() - start:.1f}s, {index.nbytes / 2**30:.2f} GiB")
    print(search(encoder, index, torch.randint(0, 8000, (32,)), "cuda"))


if __name__ == "__main__":
    main()
