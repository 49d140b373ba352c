import random
import torch
import torch.nn as nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

VOCAB = 20000
PAD = 0


def make_reviews(n=640, seed=7):
    rng = random.Random(seed)
    reviews = []
    for i in range(n):
        length = rng.randint(30, 220)
        if i == 411:
            length = 30000
        reviews.append((torch.randint(1, VOCAB, (length,)), i % 2))
    return reviews


def collate(batch):
    toks, labels = zip(*batch)
    x = pad_sequence(toks, batch_first=True, padding_value=PAD)  # HERE
    return x, torch.tensor(labels)


class Classifier(nn.Module):
    def __init__(self, d=256, heads=8, layers=4):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, d, padding_idx=PAD)
        enc = nn.TransformerEncoderLayer(d, heads, 4 * d, batch_first=True)
        self.encoder = nn.TransformerEncoder(enc, layers)
        self.out = nn.Linear(d, 2)

    def forward(self, x):
        mask = x == PAD
        h = self.encoder(self.emb(x), src_key_padding_mask=mask)
        h = h.masked_fill(mask.unsqueeze(-1), 0).sum(1) / (~mask).sum(1, keepdim=True)
        return self.out(h)


def main():
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    loader = DataLoader(make_reviews(), batch_size=16, shuffle=True, collate_fn=collate)
    model = Classifier().to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for epoch in range(3):
        for i, (x, y) in enumerate(loader):
            x, y = x.to(device), y.to(device)
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if i % 10 == 0:
                print(f"epoch {epoch} it {i} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
