"""Fine-tune a small BERT on support tickets (12 queues)."""
import argparse
import logging

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import (BertConfig, BertForSequenceClassification, Trainer,
                          TrainingArguments, set_seed)

logging.basicConfig(level=logging.INFO)
log = logging.getLogger("tickets")


class TicketDataset(Dataset):
    def __init__(self, n, seq_len, vocab, n_labels, seed):
        g = torch.Generator().manual_seed(seed)
        self.ids = torch.randint(5, vocab, (n, seq_len), generator=g)
        self.labels = torch.randint(0, n_labels, (n,), generator=g)
        # make the label visible in the text so that something is learnt
        self.ids[:, 1] = self.labels + 5

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i],
                "attention_mask": torch.ones_like(self.ids[i]),
                "labels": self.labels[i]}


def build_model(args):
    cfg = BertConfig(
        vocab_size=args.vocab,
        hidden_size=512,
        num_hidden_layers=8,
        num_attention_heads=8,
        intermediate_size=2048,
        num_labels=12,
        output_hidden_states=True,  # HERE
    )
    return BertForSequenceClassification(cfg)


def accuracy(pred):
    scores = pred.predictions
    if isinstance(scores, tuple):
        scores = scores[0]
    return {"accuracy": float((np.argmax(scores, -1) == pred.label_ids).mean())}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--vocab", type=int, default=8000)
    ap.add_argument("--seq-len", type=int, default=256)
    ap.add_argument("--out", default="/tmp/tickets")
    args = ap.parse_args()
    set_seed(13)

    train = TicketDataset(1200, args.seq_len, args.vocab, 12, 0)
    dev = TicketDataset(2400, args.seq_len, args.vocab, 12, 1)
    model = build_model(args)
    log.info("%.1fM parameters", sum(p.numel() for p in model.parameters()) / 1e6)

    targs = TrainingArguments(
        output_dir=args.out,
        per_device_train_batch_size=8,
        per_device_eval_batch_size=16,
        max_steps=60,
        eval_strategy="steps",
        eval_steps=30,
        logging_steps=10,
        learning_rate=3e-4,
        save_strategy="no",
        report_to="none",
    )
    trainer = Trainer(model=model, args=targs, train_dataset=train,
                      eval_dataset=dev, compute_metrics=accuracy)
    trainer.train()
    print(trainer.evaluate())


if __name__ == "__main__":
    main()
