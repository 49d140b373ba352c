import torch
import torch.nn as nn


class Layer(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.attn = nn.MultiheadAttention(d, h, batch_first=True)
        self.ff = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, x):
        z = self.ln1(x)
        a, _ = self.attn(z, z, z)  # HERE
        x = x + a
        return x + self.ff(self.ln2(x))


class DNAModel(nn.Module):
    def __init__(self, d=256, h=8, n=4):
        super().__init__()
        self.embed = nn.Embedding(5, d)
        self.layers = nn.ModuleList([Layer(d, h) for _ in range(n)])
        self.head = nn.Linear(d, 5)

    def forward(self, s):
        x = self.embed(s)
        for l in self.layers:
            x = l(x)
        return self.head(x)


def train(seq_len=4096, batch=4, steps=100):
    model = DNAModel().cuda()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for i in range(steps):
        s = torch.randint(0, 5, (batch, seq_len), device="cuda")
        out = model(s)
        loss = nn.functional.cross_entropy(out.transpose(1, 2), s)
        opt.zero_grad(); loss.backward(); opt.step()
        print(f"{i:3d} {loss.item():.4f}")


train()
