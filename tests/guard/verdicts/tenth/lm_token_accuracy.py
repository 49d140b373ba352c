"""Train a tiny GPT-2 on synthetic arithmetic-like sequences, then report token accuracy."""
import argparse

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import (AutoModelForCausalLM, GPT2Config, Trainer,
                          TrainingArguments, set_seed)


class PatternDataset(Dataset):
    """Sequences x[t+1] = x[t] + k (mod vocab) with a little noise."""

    def __init__(self, n, length, vocab, seed):
        rng = np.random.default_rng(seed)
        start = rng.integers(0, vocab, size=(n, 1))
        stride = rng.integers(1, 7, size=(n, 1))
        seq = (start + stride * np.arange(length)[None]) % vocab
        noise = rng.random(seq.shape) < 0.02
        seq[noise] = rng.integers(0, vocab, size=int(noise.sum()))
        self.seq = torch.from_numpy(seq).long()

    def __len__(self):
        return len(self.seq)

    def __getitem__(self, i):
        return {"input_ids": self.seq[i], "labels": self.seq[i]}


def token_accuracy(eval_pred):
    logits, labels = eval_pred
    guess = logits[:, :-1].argmax(-1)
    gold = labels[:, 1:]
    return {"token_accuracy": float((guess == gold).mean())}


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--vocab", type=int, default=50257)
    p.add_argument("--length", type=int, default=128)
    p.add_argument("--steps", type=int, default=40)
    p.add_argument("--n-eval", type=int, default=320)
    p.add_argument("--out", default="/tmp/lm_token_accuracy")
    return p.parse_args()


def main():
    args = parse_args()
    set_seed(0)
    config = GPT2Config(vocab_size=args.vocab, n_positions=args.length,
                        n_embd=256, n_layer=4, n_head=4)
    model = AutoModelForCausalLM.from_config(config)
    print(f"parameters: {model.num_parameters() / 1e6:.1f}M")

    train_set = PatternDataset(2000, args.length, args.vocab, seed=1)
    eval_set = PatternDataset(args.n_eval, args.length, args.vocab, seed=2)

    training_args = TrainingArguments(
        output_dir=args.out,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        learning_rate=5e-4,
        max_steps=args.steps,
        logging_steps=10,
        save_strategy="no",
        report_to="none",
    )
    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=train_set,
        eval_dataset=eval_set,
        compute_metrics=token_accuracy,  # HERE
    )
    trainer.train()
    print("training done, evaluating")
    metrics = trainer.evaluate()  # HERE
    for k, v in sorted(metrics.items()):
        print(f"  {k}: {v}")


if __name__ == "__main__":
    main()
