"""Embed a corpus of abstracts with a BERT encoder and build a nearest-neighbour index over [CLS] vectors."""
import argparse
import sys
import time

import torch
from transformers import BertConfig, BertModel


def parse_args(argv):
    ap = argparse.ArgumentParser()
    ap.add_argument("--abstracts", type=int, default=60000)
    ap.add_argument("--batch-size", type=int, default=48)
    ap.add_argument("--max-length", type=int, default=384)
    ap.add_argument("--hidden", type=int, default=512)
    ap.add_argument("--layers", type=int, default=4)
    ap.add_argument("--neighbours", type=int, default=5)
    return ap.parse_args(argv)


def build_encoder(args, device):
    config = BertConfig(
        vocab_size=16000,
        hidden_size=args.hidden,
        num_hidden_layers=args.layers,
        num_attention_heads=8,
        intermediate_size=4 * args.hidden,
        max_position_embeddings=512,
    )
    torch.manual_seed(0)
    return BertModel(config, add_pooling_layer=False).to(device).eval()


class TokenisedCorpus:
    """Pre-tokenised shards; every shard is a (batch, length) id matrix with trailing padding."""

    def __init__(self, n, batch_size, max_length, device):
        self.n, self.batch_size, self.max_length, self.device = n, batch_size, max_length, device
        self.shard = torch.randint(5, 16000, (batch_size, max_length), device=device)

    def __iter__(self):
        for start in range(0, self.n, self.batch_size):
            ids = (self.shard + start) % 15995 + 5
            lengths = torch.randint(self.max_length // 2, self.max_length + 1, (self.batch_size, 1), device=self.device)
            mask = torch.arange(self.max_length, device=self.device)[None] < lengths
            yield {"input_ids": ids * mask, "attention_mask": mask.long()}

    def __len__(self):
        return (self.n + self.batch_size - 1) // self.batch_size


@torch.no_grad()
def embed(encoder, corpus):
    vectors = []
    t0 = time.time()
    for i, batch in enumerate(corpus):
        hidden = encoder(**batch).last_hidden_state
        vectors.append(hidden[:, 0])  # HERE
        if i % 20 == 0:
            done = (i + 1) * corpus.batch_size
            print(f"{done}/{corpus.n} abstracts, {done / (time.time() - t0):.0f}/s", file=sys.stderr)
    return torch.cat(vectors)


@torch.no_grad()
def nearest(vectors, k, chunk=1024):
    vectors = torch.nn.functional.normalize(vectors, dim=1)
    out = []
    for part in vectors.split(chunk):
        out.append((part @ vectors.t()).topk(k + 1, dim=1).indices[:, 1:].cpu())
    return torch.cat(out)


def main(argv=None):
    args = parse_args(argv)
    device = torch.device("cuda")
    encoder = build_encoder(args, device)
    corpus = TokenisedCorpus(args.abstracts, args.batch_size, args.max_length, device)
    print(f"{len(corpus)} batches of {args.batch_size}", file=sys.stderr)
    vectors = embed(encoder, corpus)
    neighbours = nearest(vectors, args.neighbours)
    print("index", tuple(vectors.shape), "neighbours", tuple(neighbours.shape))


if __name__ == "__main__":
    main()
