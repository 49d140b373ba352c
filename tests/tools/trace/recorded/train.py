"""Two small trainings, of which cnn.trace.gz and transformer.trace.gz were recorded:

headroom trace train.py:make_cnn --batch 16 --steps 2 -o cnn.trace.gz
headroom trace train.py:make_transformer --batch 4 --steps 2 --device rtx-3090 -o transformer.trace.gz
"""

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    def __init__(self, words=1000, width=128, heads=4, layers=2):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.head = nn.Linear(width, words)

    def forward(self, tokens):
        return self.head(self.blocks(self.embed(tokens)))


def make_step(net, inputs, targets):
    net.cuda().train()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            logits = net(inputs)
            loss = F.cross_entropy(logits.flatten(0, -2), targets.flatten())
        loss.backward()
        optimizer.step()

    return step


def make_cnn(batch):
    net = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
                        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                        nn.Dropout(0.2), nn.Linear(64, 10))
    images = torch.randn(batch, 3, 32, 32, device="cuda")
    return make_step(net, images, torch.randint(0, 10, (batch,), device="cuda"))


def make_transformer(batch):
    tokens = torch.randint(0, 1000, (batch, 128), device="cuda")
    return make_step(Transformer(), tokens, tokens)
