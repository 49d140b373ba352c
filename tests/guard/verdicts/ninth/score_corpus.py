"""Perplexity of a small GPT on each part of a corpus."""
import argparse
import math
from collections import Counter, defaultdict

import torch
from transformers import GPT2Config, GPT2LMHeadModel

PARTS = ["news", "law", "fiction", "code", "chat", "wiki"]


class Corpus:
    """Documents of several parts, cut into equal windows."""

    def __init__(self, windows, length, vocab, seed=4):
        gen = torch.Generator().manual_seed(seed)
        self.part = torch.randint(len(PARTS), (windows,), generator=gen)
        self.ids = torch.randint(vocab, (windows, length), generator=gen)
        narrow = torch.randint(vocab // 20, (windows, length), generator=gen)
        use = torch.rand(windows, 1, generator=gen) < 0.5
        self.ids = torch.where(use, narrow, self.ids)

    def batches(self, size):
        """Batches that hold windows of one part only."""
        for number, name in enumerate(PARTS):
            for ids in self.ids[self.part == number].split(size):
                yield name, ids


def load_model(args, device):
    config = GPT2Config(
        vocab_size=args.vocab, n_positions=args.length, n_embd=args.dim, n_layer=args.layers, n_head=6,
        bos_token_id=0, eos_token_id=0,
    )
    model = GPT2LMHeadModel(config)
    return model.to(device).eval()


def score(model, corpus, batch, device):
    nll = defaultdict(float)
    tokens = Counter()
    for i, (part, ids) in enumerate(corpus.batches(batch)):
        ids = ids.to(device)
        out = model(ids, labels=ids, use_cache=False)
        count = ids.shape[0] * (ids.shape[1] - 1)
        nll[part] += out.loss * count  # HERE
        tokens[part] += count
        if i % 20 == 0:
            print(f"{sum(tokens.values())} tokens scored", flush=True)
    return {part: math.exp(float(nll[part]) / tokens[part]) for part in tokens}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--windows", type=int, default=4000)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--vocab", type=int, default=8000)
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--batch", type=int, default=8)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    corpus = Corpus(args.windows, args.length, args.vocab)
    model = load_model(args, device)
    for part, perplexity in score(model, corpus, args.batch, device).items():
        print(f"{part:>8}: {perplexity:.1f}")


if __name__ == "__main__":
    main()
