"""Domain-adaptive MLM on clinical notes with the Hugging Face Trainer."""
import os
import tempfile
from dataclasses import dataclass, field

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import (BertConfig, BertForMaskedLM, HfArgumentParser, Trainer,
                          TrainingArguments, set_seed)


@dataclass
class DataArguments:
    n_train: int = field(default=4000, metadata={"help": "number of note segments"})
    n_eval: int = field(default=960)
    seq_len: int = field(default=128)
    mlm_probability: float = field(default=0.15)


@dataclass
class ModelArguments:
    hidden: int = field(default=256)
    layers: int = field(default=4)
    vocab: int = field(default=30522)


class NoteSegments(Dataset):
    mask_id = 103

    def __init__(self, n, args: DataArguments, vocab, seed):
        self.n, self.a, self.vocab, self.seed = n, args, vocab, seed

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        rng = np.random.default_rng(self.seed * 1_000_003 + i)
        ids = rng.zipf(1.3, self.a.seq_len) % (self.vocab - 1000) + 1000
        masked = rng.random(self.a.seq_len) < self.a.mlm_probability
        labels = np.where(masked, ids, -100)
        ids = np.where(masked, self.mask_id, ids)
        return {"input_ids": torch.from_numpy(ids).long(),
                "attention_mask": torch.ones(self.a.seq_len, dtype=torch.long),
                "labels": torch.from_numpy(labels).long()}


def compute_metrics(eval_pred):
    logits, labels = eval_pred
    keep = labels != -100
    top1 = logits.argmax(-1)
    acc = (top1[keep] == labels[keep]).mean()
    part = np.argpartition(-logits[keep], 5, axis=-1)[:, :5]
    top5 = (part == labels[keep][:, None]).any(-1).mean()
    return {"masked_acc": float(acc), "masked_top5": float(top5)}


def main():
    parser = HfArgumentParser((ModelArguments, DataArguments))
    margs, dargs = parser.parse_args_into_dataclasses()
    set_seed(13)

    config = BertConfig(vocab_size=margs.vocab, hidden_size=margs.hidden,
                        num_hidden_layers=margs.layers, num_attention_heads=4,
                        intermediate_size=margs.hidden * 4,
                        max_position_embeddings=dargs.seq_len)
    model = BertForMaskedLM(config)
    out = tempfile.mkdtemp(prefix="clinical-mlm-")
    training_args = TrainingArguments(
        output_dir=os.path.join(out, "run"),
        per_device_train_batch_size=8,
        per_device_eval_batch_size=16,
        learning_rate=2e-4,
        max_steps=120,
        warmup_steps=10,
        logging_steps=20,
        save_strategy="no",
        report_to="none",
    )
    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=NoteSegments(dargs.n_train, dargs, margs.vocab, seed=1),
        eval_dataset=NoteSegments(dargs.n_eval, dargs, margs.vocab, seed=2),
        compute_metrics=compute_metrics,  # HERE
    )
    trainer.train()
    metrics = trainer.evaluate()  # HERE
    for k, v in sorted(metrics.items()):
        print(f"{k:>28}: {v:.4f}" if isinstance(v, float) else f"{k:>28}: {v}")


if __name__ == "__main__":
    main()
