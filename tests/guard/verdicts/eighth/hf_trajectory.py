#!/usr/bin/env python3
"""Loss-landscape study: train a small GPT-2 on synthetic MIDI tokens and record the optimisation path."""
import argparse
import math

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments


class MidiTokens(Dataset):
    """Arpeggios: note, velocity, duration triples with a random root."""

    def __init__(self, n, length, vocab):
        self.n, self.length, self.vocab = n, length, vocab
        self.base = torch.arange(length)

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        root, step = (i * 7919) % self.vocab, 1 + i % 12
        ids = (root + step * (self.base % 16)) % self.vocab
        return {"input_ids": ids, "labels": ids.clone()}


class PathRecorder(TrainerCallback):
    """Samples the weights along training so that PCA directions can be drawn afterwards."""

    def __init__(self, every):
        self.every = every
        self.path = []
        self.steps = []

    def on_step_end(self, args, state, control, model=None, **kwargs):
        if state.global_step % self.every == 0:
            flat = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
            self.path.append(flat)  # HERE
            self.steps.append(state.global_step)

    def on_log(self, args, state, control, logs=None, **kwargs):
        if len(self.path) > 1 and logs is not None:
            dist = (self.path[-1] - self.path[0]).norm().item()
            print(f"step {state.global_step}: distance from start {dist:.3f}, logs {logs}")

    def directions(self, k=2):
        final = self.path[-1]
        gram = torch.zeros(len(self.path), len(self.path), dtype=torch.float64)
        for i, a in enumerate(self.path):
            for j, b in enumerate(self.path[: i + 1]):
                gram[i, j] = gram[j, i] = torch.dot(a - final, b - final).item()
        evals, evecs = torch.linalg.eigh(gram)
        return evals[-k:], evecs[:, -k:]


def build_model(args):
    cfg = GPT2Config(
        vocab_size=4096, n_positions=256, n_embd=args.width, n_layer=args.depth, n_head=8,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0,
    )
    return GPT2LMHeadModel(cfg)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=640)
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--record-every", type=int, default=5)
    parser.add_argument("--max-steps", type=int, default=600)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--out", default="/tmp/hf_trajectory")
    args = parser.parse_args()

    model = build_model(args)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f}M parameters")
    recorder = PathRecorder(args.record_every)
    targs = TrainingArguments(
        output_dir=args.out,
        max_steps=args.max_steps,
        per_device_train_batch_size=args.batch,
        learning_rate=3e-4,
        warmup_steps=20,
        logging_steps=25,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    trainer = Trainer(model=model, args=targs, train_dataset=MidiTokens(20000, 128, 4096), callbacks=[recorder])
    result = trainer.train()
    print(f"perplexity {math.exp(result.training_loss):.2f}, {len(recorder.path)} points on the path")
    evals, _ = recorder.directions()
    print("explained", (evals / evals.sum()).tolist())


if __name__ == "__main__":
    main()
