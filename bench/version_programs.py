"""Twelve small trainings and inferences, which check_versions.py traces with versions of PyTorch. They need torch alone."""

import os
import sys
import tempfile

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

CUDA = "cuda"


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        layers = []
        for _ in range(2):
            layers += [nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU(True)]
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return x + self.layers(x)


class Block(nn.Module):
    """A block of a transformer, whose attention is one of PyTorch's fused kernels."""

    def __init__(self, width=512, heads=8):
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(self.before(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.after(x))


class Language(nn.Module):
    def __init__(self, layers=4, width=512, words=8192, checkpoints=False):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.head = nn.Linear(width, words, bias=False)
        self.checkpoints = checkpoints

    def forward(self, tokens):
        x = self.words(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpoints else block(x)
        return self.head(x)


def images(channels=64, blocks=3):
    return nn.Sequential(
        nn.Conv2d(3, channels, 7, stride=2, padding=3, bias=False),
        nn.BatchNorm2d(channels),
        nn.ReLU(True),
        nn.MaxPool2d(3, 2, 1),
        *(Residual(channels) for _ in range(blocks)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(channels, 100),
    )


def image_batch(batch, size=128):
    return torch.randn(batch, 3, size, size, device=CUDA), torch.randint(100, (batch,), device=CUDA)


def training(net, optimizer, inputs, targets, dtype=None, scaler=None):
    """A step of a classification, in autocast where a type is given."""

    def step():
        optimizer.zero_grad()
        with torch.autocast(CUDA, dtype or torch.bfloat16, enabled=dtype is not None):
            outputs = net(inputs)
            loss = F.cross_entropy(outputs.flatten(0, -2), targets.flatten())
        if scaler is None:
            loss.backward()
            return optimizer.step()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return step


def language_training(batch, make_optimizer, dtype=None, **options):
    net = Language(**options).to(CUDA)
    tokens = torch.randint(8192, (batch, 256), device=CUDA)
    return training(net, make_optimizer(net.parameters()), tokens, tokens, dtype)


def make_cnn(batch=16):
    net = images().to(CUDA)
    return training(net, torch.optim.SGD(net.parameters(), 0.1, momentum=0.9), *image_batch(batch))


def make_channels_last(batch=16):
    net = images().to(CUDA, memory_format=torch.channels_last)
    inputs, targets = image_batch(batch)
    inputs = inputs.to(memory_format=torch.channels_last)
    return training(net, torch.optim.AdamW(net.parameters()), inputs, targets, torch.bfloat16)


def make_scaler(batch=16):
    net = images().to(CUDA)
    optimizer = torch.optim.Adam(net.parameters())
    scaler = torch.amp.GradScaler(CUDA)
    return training(net, optimizer, *image_batch(batch), torch.float16, scaler)


def make_transformer(batch=8):
    return language_training(batch, torch.optim.AdamW, torch.bfloat16)


def make_checkpointing(batch=8):
    return language_training(batch, torch.optim.AdamW, torch.bfloat16, checkpoints=True)


def make_foreach(batch=4):
    return language_training(batch, lambda p: torch.optim.Adam(p, foreach=True))


def make_fused(batch=4):
    return language_training(batch, lambda p: torch.optim.Adam(p, fused=True))


def make_embedding(batch=256):
    """Bags of words: most of it is an embedding with dense gradients."""
    bag = nn.EmbeddingBag(50000, 128, mode="sum", sparse=False)
    net = nn.Sequential(nn.Embedding(20000, 128), nn.Flatten(), nn.Linear(128 * 32, 128)).to(CUDA)
    bag = bag.to(CUDA)
    words = torch.randint(20000, (batch, 32), device=CUDA)
    optimizer = torch.optim.Adagrad([*net.parameters(), *bag.parameters()])

    def step():
        optimizer.zero_grad()
        (net(words) * bag(words)).sum().backward()
        optimizer.step()

    return step


def make_lstm(batch=32):
    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(10000, 256)
            self.recurrent = nn.LSTM(256, 512, num_layers=2, batch_first=True)
            self.head = nn.Linear(512, 10000)

        def forward(self, tokens):
            return self.head(self.recurrent(self.words(tokens))[0])

    net = Tagger().to(CUDA)
    tokens = torch.randint(10000, (batch, 64), device=CUDA)
    return training(net, torch.optim.RMSprop(net.parameters()), tokens, tokens)


def make_accumulation(batch=4):
    net = Language(layers=2).to(CUDA)
    optimizer = torch.optim.AdamW(net.parameters())
    tokens = torch.randint(8192, (4, batch, 256), device=CUDA)

    def step():
        for part in tokens:
            (F.cross_entropy(net(part).flatten(0, 1), part.flatten()) / len(tokens)).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def resume():
    """Saves a net and its optimizer after a step, loads both, and goes on."""
    net = images().to(CUDA)
    optimizer = torch.optim.Adam(net.parameters())
    inputs, targets = image_batch(8)
    training(net, optimizer, inputs, targets)()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "net.pt")
        torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, path)
        state = torch.load(path, map_location=CUDA, weights_only=False)
    resumed = images().to(CUDA)
    resumed.load_state_dict(state["net"])
    optimizer = torch.optim.Adam(resumed.parameters())
    optimizer.load_state_dict(state["optimizer"])
    for _ in range(4):
        training(resumed, optimizer, inputs, targets)()


def main():
    """A script with a data loader, and an evaluation after each epoch."""
    inputs, targets = torch.randn(256, 3, 64, 64), torch.randint(100, (256,))
    data = TensorDataset(inputs, targets)
    train = DataLoader(data, batch_size=32, shuffle=True, num_workers=2, pin_memory=True)
    test = DataLoader(data, batch_size=64)
    net = images().to(CUDA)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    for _ in range(2):
        net.train()
        for x, y in train:
            training(net, optimizer, x.to(CUDA, non_blocking=True), y.to(CUDA))()
        net.eval()
        with torch.no_grad():
            for x, y in test:
                print((net(x.to(CUDA)).argmax(1) == y.to(CUDA)).float().mean().item())


STEPS = [  # functions that return a step
    make_cnn,
    make_channels_last,
    make_scaler,
    make_transformer,
    make_checkpointing,
    make_foreach,
    make_fused,
    make_embedding,
    make_lstm,
    make_accumulation,
]


def trace_steps(folder, device):
    """Traces the functions of STEPS, each in a copy of this process, into FOLDER/NAME.trace or its error into NAME.error."""
    import headroom.torch

    for function in STEPS:
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            continue
        path = os.path.join(folder, function.__name__)
        try:
            headroom.torch.trace(function, device=device, program=function.__name__).save(path + ".trace")
        except BaseException as error:  # it is shown in the table
            with open(path + ".error", "w", encoding="utf-8") as file:
                file.write(f"{type(error).__name__}: {error}")
        os._exit(0)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        (resume if sys.argv[1] == "resume" else main)()
    else:
        trace_steps(*sys.argv[1:])
