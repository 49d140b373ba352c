"""ColBERT-style late interaction retriever trained with in-batch negatives."""
import argparse
import dataclasses
import logging

import torch
import torch.nn as nn
import torch.nn.functional as F

logging.basicConfig(format="[%(asctime)s] %(message)s", level=logging.INFO)


@dataclasses.dataclass
class TrainArgs:
    vocab: int = 12000
    hidden: int = 256
    dim: int = 128
    layers: int = 2
    query_len: int = 32
    doc_len: int = 180
    batch: int = 64
    steps: int = 500
    lr: float = 3e-4
    temperature: float = 0.05


class TokenEncoder(nn.Module):
    def __init__(self, a: TrainArgs):
        super().__init__()
        self.emb = nn.Embedding(a.vocab, a.hidden)
        self.pos = nn.Embedding(max(a.query_len, a.doc_len), a.hidden)
        layer = nn.TransformerEncoderLayer(a.hidden, 4, 4 * a.hidden, dropout=0.0, batch_first=True)
        self.enc = nn.TransformerEncoder(layer, a.layers, enable_nested_tensor=False)
        self.proj = nn.Linear(a.hidden, a.dim, bias=False)

    def forward(self, ids):
        pos = torch.arange(ids.shape[1], device=ids.device)
        h = self.enc(self.emb(ids) + self.pos(pos))
        return F.normalize(self.proj(h), dim=-1)


def maxsim(queries, docs, doc_mask):
    """queries (Q, m, d), docs (D, n, d), doc_mask (D, n) -> scores (Q, D)."""
    sim = (queries[:, None, :, None, :] * docs[None, :, None, :, :]).sum(dim=-1)  # HERE
    sim = sim.masked_fill(~doc_mask[None, :, None, :], -1e4)
    return sim.max(dim=-1).values.sum(dim=-1)


class SyntheticMarco:
    def __init__(self, a: TrainArgs, device):
        self.a, self.device = a, device

    def sample(self):
        a = self.a
        docs = torch.randint(1, a.vocab, (a.batch, a.doc_len), device=self.device)
        start = torch.randint(0, a.doc_len - a.query_len, (1,)).item()
        queries = docs[:, start:start + a.query_len].clone()
        noise = torch.rand(queries.shape, device=self.device) < 0.3
        queries[noise] = 0
        lengths = torch.randint(start + a.query_len, a.doc_len + 1, (a.batch, 1), device=self.device)
        mask = torch.arange(a.doc_len, device=self.device)[None] < lengths
        return queries, docs * mask, mask


def train(a: TrainArgs):
    device = torch.device("cuda")
    torch.manual_seed(42)
    encoder = TokenEncoder(a).to(device)
    optim = torch.optim.AdamW(encoder.parameters(), lr=a.lr)
    data = SyntheticMarco(a, device)
    labels = torch.arange(a.batch, device=device)
    for step in range(a.steps):
        q_ids, d_ids, d_mask = data.sample()
        q, d = encoder(q_ids), encoder(d_ids)
        scores = maxsim(q, d, d_mask) / a.query_len
        loss = F.cross_entropy(scores / a.temperature, labels)
        optim.zero_grad(set_to_none=True)
        loss.backward()
        optim.step()
        if step % 25 == 0:
            acc = (scores.argmax(1) == labels).float().mean()
            logging.info("step=%d loss=%.4f acc=%.3f", step, loss.item(), acc.item())


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    for f in dataclasses.fields(TrainArgs):
        ap.add_argument("--" + f.name.replace("_", "-"), type=type(f.default), default=f.default)
    train(TrainArgs(**vars(ap.parse_args())))
