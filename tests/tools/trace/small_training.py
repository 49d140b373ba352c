"""A training of a small net whose loss a test gives, and what the tracer says where it refuses it."""

import torch
from torch import nn

from headroom.torch import TraceError, trace


def training(body, device="cuda", optimizer=torch.optim.SGD):
    """A program with one linear layer; `body(net, x)` computes its loss."""

    def make_step(batch):
        net = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256)).to(device)
        opt = optimizer(net.parameters(), lr=0.1)
        x = torch.randn(batch, 256, device=device)

        def step():
            opt.zero_grad()
            body(net, x).backward()
            opt.step()

        return step

    return make_step


def unknown(x):
    """A tensor like x of whose values a trace knows nothing: a gradient."""
    y = x.detach().float().requires_grad_()
    (y * y).sum().backward()
    return y.grad.to(x.dtype)


def refusal(body, compute="auto"):
    try:
        trace(training(body), batch=8, steps=1, compute=compute)
    except TraceError as error:
        return str(error)
    return ""
