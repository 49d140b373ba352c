"""A training step of GPT-2: headroom predict examples/gpt2.py:make_step --batch 64"""

import torch
from transformers import GPT2Config, GPT2LMHeadModel


def make_step(batch):
    model = GPT2LMHeadModel(GPT2Config()).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(0, 50257, (batch, 512), device="cuda")

    def step():
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()

    return step
