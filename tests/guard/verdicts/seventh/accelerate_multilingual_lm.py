#!/usr/bin/env python
# coding=utf-8
"""Continue pretraining a compact multilingual decoder with Accelerate (bf16)."""
import argparse
import logging
import math

import torch
from accelerate import Accelerator
from accelerate.logging import get_logger
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, Dataset
from transformers import LlamaConfig, LlamaForCausalLM, get_scheduler

logger = get_logger(__name__)


class PackedTokens(Dataset):
    """Zipf-like token ids packed to a fixed block size."""

    def __init__(self, n_blocks, block_size, vocab_size, seed=0):
        self.n, self.block, self.vocab = n_blocks, block_size, vocab_size
        self.seed = seed

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.seed + i)
        u = torch.rand(self.block, generator=g)
        ids = (self.vocab ** u).long().clamp(max=self.vocab - 1)
        return {"input_ids": ids, "labels": ids.clone()}


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--vocab_size", type=int, default=151936)
    p.add_argument("--hidden_size", type=int, default=512)
    p.add_argument("--num_layers", type=int, default=4)
    p.add_argument("--block_size", type=int, default=1024)
    p.add_argument("--per_device_train_batch_size", type=int, default=4)
    p.add_argument("--gradient_accumulation_steps", type=int, default=8)
    p.add_argument("--max_train_steps", type=int, default=500)
    p.add_argument("--learning_rate", type=float, default=3e-4)
    p.add_argument("--warmup_steps", type=int, default=50)
    p.add_argument("--seed", type=int, default=42)
    return p.parse_args()


def build_model(args):
    config = LlamaConfig(
        vocab_size=args.vocab_size,
        hidden_size=args.hidden_size,
        intermediate_size=args.hidden_size * 3,
        num_hidden_layers=args.num_layers,
        num_attention_heads=8,
        num_key_value_heads=4,
        max_position_embeddings=args.block_size,
        tie_word_embeddings=True,
        use_cache=False,
    )
    model = LlamaForCausalLM(config)
    model.gradient_checkpointing_enable()
    return model


def main():
    args = parse_args()
    accelerator = Accelerator(
        mixed_precision="bf16",
        gradient_accumulation_steps=args.gradient_accumulation_steps,
    )
    logging.basicConfig(format="%(asctime)s - %(levelname)s - %(name)s - %(message)s",
                        level=logging.INFO)
    set_seed(args.seed)

    model = build_model(args)
    loader = DataLoader(PackedTokens(20000, args.block_size, args.vocab_size),
                        batch_size=args.per_device_train_batch_size, shuffle=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, betas=(0.9, 0.95))
    scheduler = get_scheduler("cosine", optimizer, num_warmup_steps=args.warmup_steps,
                              num_training_steps=args.max_train_steps)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)

    n = sum(p.numel() for p in model.parameters())
    logger.info(f"parameters: {n / 1e6:.1f}M, tokens per update: "
                f"{args.block_size * args.per_device_train_batch_size * args.gradient_accumulation_steps}")
    completed, running = 0, 0.0
    model.train()
    while completed < args.max_train_steps:
        for batch in loader:
            with accelerator.accumulate(model):
                outputs = model(**batch)  # HERE
                accelerator.backward(outputs.loss)  # HERE
                running += outputs.loss.detach().float().item()
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                completed += 1
                mean = running / args.gradient_accumulation_steps
                running = 0.0
                logger.info(f"update {completed} loss {mean:.3f} ppl {math.exp(min(mean, 20)):.1f}")
            if completed >= args.max_train_steps:
                break
    accelerator.end_training()


if __name__ == "__main__":
    main()
