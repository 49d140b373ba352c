"""Causal LM fine-tuning on free-text maintenance reports."""
import random
import zlib

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

VOCAB, BOS, PAD = 32000, 1, 0
WORDS = ["pump", "valve", "inspected", "replaced", "leaking", "pressure", "normal", "bearing",
         "noise", "oil", "level", "checked", "sensor", "reading", "drift", "filter", "cleaned"]


def load_reports(n=320, seed=5):
    rng = random.Random(seed)
    reports = []
    for i in range(n):
        n_words = rng.randint(60, 300)
        if i in (120, 260):
            n_words = 9000
        reports.append(" ".join(f"{rng.choice(WORDS)}{rng.randint(0, 400)}" for _ in range(n_words)))
    return reports


def encode(text):
    ids = [BOS] + [3 + zlib.crc32(w.encode()) % (VOCAB - 3) for w in text.split()]  # HERE
    return {"input_ids": ids, "labels": list(ids)}


def collate(rows):
    longest = max(len(r["input_ids"]) for r in rows)
    batch = {"input_ids": [], "attention_mask": [], "labels": []}
    for r in rows:
        n = len(r["input_ids"])
        gap = longest - n
        batch["input_ids"].append(r["input_ids"] + [PAD] * gap)
        batch["attention_mask"].append([1] * n + [0] * gap)
        batch["labels"].append(r["labels"] + [-100] * gap)
    return {k: torch.tensor(v) for k, v in batch.items()}


def main():
    dataset = [encode(t) for t in load_reports()]
    print(f"{len(dataset)} reports, {sum(len(d['input_ids']) for d in dataset)} tokens")
    config = LlamaConfig(vocab_size=VOCAB, hidden_size=256, intermediate_size=688,
                         num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=4,
                         max_position_embeddings=16384)
    args = TrainingArguments(
        output_dir="/tmp/reports", num_train_epochs=1, per_device_train_batch_size=8,
        learning_rate=3e-4, logging_steps=5, save_strategy="no", report_to="none",
        disable_tqdm=True, seed=1, remove_unused_columns=False,
    )
    Trainer(model=LlamaForCausalLM(config), args=args, train_dataset=dataset,
            data_collator=collate).train()
    print("finished")


if __name__ == "__main__":
    main()
