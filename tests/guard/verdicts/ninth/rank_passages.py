"""Late-interaction ranking: encodes candidate passages token by token, keeps the best of each query, matches terms."""
import argparse

import torch
import torch.nn.functional as F
from torch import nn


class TokenEncoder(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.proj = nn.Linear(dim, dim, bias=False)

    def forward(self, ids):
        return self.proj(self.embed(ids))


class Queries:
    def __init__(self, count, candidates, tokens, vocab, seed=3):
        gen = torch.Generator().manual_seed(seed)
        self.query = torch.randint(vocab, (count, 16), generator=gen)
        self.passages = torch.randint(vocab, (count, candidates, tokens), generator=gen)

    def __len__(self):
        return len(self.query)


@torch.inference_mode()
def encode_all(encoder, queries, device):
    """Token embeddings of the candidates of each query."""
    encoded = []
    for passages in queries.passages:
        encoded.append([encoder(passage.to(device)) for passage in passages])  # HERE
    return encoded


@torch.inference_mode()
def best_candidates(encoder, queries, encoded, keep, device):
    best = []
    for query, candidates in zip(queries.query, encoded):
        q = F.normalize(encoder(query.to(device)), dim=-1)
        scores = [float((q @ c.T).amax(1).sum() / c.norm()) for c in candidates]
        order = sorted(range(len(scores)), key=scores.__getitem__, reverse=True)
        best.extend(candidates[i] for i in order[:keep])
    return best


@torch.inference_mode()
def match_terms(encoder, best, terms, device):
    """How well each token of each chosen passage matches each index term."""
    table = encoder(terms.to(device))
    match = torch.empty(len(best), len(best[0]), len(terms), device=device)  # HERE
    for row, passage in zip(match, best):
        torch.matmul(passage, table.T, out=row)
    return match.amax(1).mean(0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--queries", type=int, default=150)
    parser.add_argument("--candidates", type=int, default=5)
    parser.add_argument("--keep", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--dim", type=int, default=1024)
    parser.add_argument("--terms", type=int, default=1280)
    parser.add_argument("--vocab", type=int, default=5000)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    encoder = TokenEncoder(args.vocab, args.dim).to(device).eval()
    queries = Queries(args.queries, args.candidates, args.tokens, args.vocab)

    encoded = encode_all(encoder, queries, device)
    print(f"{len(queries)} queries encoded", flush=True)
    best = best_candidates(encoder, queries, encoded, args.keep, device)
    del encoded
    print(f"{len(best)} passages chosen", flush=True)
    terms = torch.randperm(args.vocab)[:args.terms]
    relevance = match_terms(encoder, best, terms, device)
    for term in relevance.topk(5).indices.tolist():
        print(f"term {terms[term]}: {relevance[term]:.3f}")


if __name__ == "__main__":
    main()
