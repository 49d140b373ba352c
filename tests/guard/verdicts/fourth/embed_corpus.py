import argparse
import torch
import torch.nn as nn


class SentenceEncoder(nn.Module):
    def __init__(self, vocab=30522, d=768, layers=2):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        layer = nn.TransformerEncoderLayer(d, 12, 4 * d, batch_first=True, activation="gelu")
        self.enc = nn.TransformerEncoder(layer, layers)

    def forward(self, ids):
        return self.enc(self.emb(ids))


@torch.inference_mode()
def embed(model, n_batches, device):
    model.eval()
    sentence_vecs = []
    for i in range(n_batches):
        ids = torch.randint(0, 30522, (64, 512), device=device)
        hidden = model(ids)
        sentence_vecs.append(hidden[:, 0])  # HERE
        if i % 10 == 0:
            print("embedded", (i + 1) * 64, flush=True)
    return torch.cat(sentence_vecs)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batches", type=int, default=400)
    opts = parser.parse_args()
    dev = "cuda"
    vecs = embed(SentenceEncoder().to(dev), opts.batches, dev)
    print(vecs.shape, vecs.norm(dim=1).mean())
