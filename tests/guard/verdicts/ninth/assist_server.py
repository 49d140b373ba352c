"""Assistant backend under simulated load: a user who comes back continues where they left off."""
import argparse
import random
import time

import torch
import torch.nn.functional as F
from torch import nn


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x, past):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).reshape(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=past is None)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.norm2(x)), (k.contiguous(), v.contiguous())


class Decoder(nn.Module):
    def __init__(self, vocab, dim, layers, heads, positions=4096):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.position = nn.Embedding(positions, dim)
        self.layers = nn.ModuleList(Layer(dim, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)

    def forward(self, ids, past=None):
        start = past[0][0].shape[2] if past else 0
        x = self.embed(ids) + self.position(torch.arange(start, start + ids.shape[1], device=ids.device))
        present = []
        for i, layer in enumerate(self.layers):
            x, kv = layer(x, past[i] if past else None)
            present.append(kv)
        return self.norm(x[:, -1]) @ self.embed.weight.T, present


class Assistant:
    def __init__(self, model, device):
        self.model, self.device = model, device
        self.sessions = {}

    @torch.inference_mode()
    def answer(self, user, prompt, tokens):
        ids = prompt.to(self.device)
        past = self.sessions.get(user)
        words = []
        for _ in range(tokens):
            logits, past = self.model(ids, past)
            ids = logits.argmax(-1, keepdim=True)
            words.append(ids)
        self.sessions[user] = past  # HERE
        return torch.cat(words, 1).tolist()[0]


class Traffic:
    """Nine of ten requests are from somebody new, with a document to talk about."""

    def __init__(self, vocab, document, seed=2):
        self.random = random.Random(seed)
        self.gen = torch.Generator().manual_seed(seed)
        self.vocab, self.document = vocab, document
        self.known = []

    def next(self):
        if self.known and self.random.random() < 0.1:
            return self.random.choice(self.known[-20:]), torch.randint(self.vocab, (1, 1), generator=self.gen)
        user = f"user-{len(self.known)}"
        self.known.append(user)
        return user, torch.randint(self.vocab, (1, self.document), generator=self.gen)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--document", type=int, default=1024)
    parser.add_argument("--tokens", type=int, default=8)
    parser.add_argument("--vocab", type=int, default=8000)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--layers", type=int, default=12)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = Decoder(args.vocab, args.dim, args.layers, heads=8).to(device).eval()
    assistant, traffic = Assistant(model, device), Traffic(args.vocab, args.document)
    start = time.time()
    for request in range(args.requests):
        user, prompt = traffic.next()
        assistant.answer(user, prompt, args.tokens)
        if request % 10 == 0:
            print(f"{request} requests, {request / (time.time() - start):.1f} a second", flush=True)


if __name__ == "__main__":
    main()
