"""Fine-tune a small BERT on ticket routing and probe which layer carries the label signal."""
import argparse
import logging

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

logger = logging.getLogger(__name__)
NUM_QUEUES = 6


class TicketDataset(Dataset):
    def __init__(self, size, length, vocab, seed):
        g = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(0, NUM_QUEUES, (size,), generator=g)
        self.ids = torch.randint(10, vocab, (size, length), generator=g)
        self.ids[:, 1:6] = 10 + self.labels[:, None]
        self.ids[:, 0] = 1
        self.mask = torch.ones(length, dtype=torch.long)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "attention_mask": self.mask, "labels": self.labels[i]}


def compute_metrics(eval_pred):
    preds = eval_pred.predictions
    logits = preds[0] if isinstance(preds, tuple) else preds
    guess = np.argmax(logits, axis=-1)
    acc = float((guess == eval_pred.label_ids).mean())
    per_queue = {f"recall_{q}": float((guess[eval_pred.label_ids == q] == q).mean()) for q in range(NUM_QUEUES)}
    return {"accuracy": acc, **per_queue}


@torch.no_grad()
def probe_layers(model, dataset, n=64):
    """Leave-one-out centroid accuracy of the mean-pooled states of each layer."""
    model.eval()
    items = [dataset[i] for i in range(n)]
    batch = {k: torch.stack([it[k] for it in items]).to(model.device) for k in items[0]}
    labels = batch.pop("labels")
    states = model(**batch).hidden_states
    scores = []
    for h in states:
        v = torch.nn.functional.normalize(h.mean(1), dim=-1)
        sim = v @ v.t()
        sim.fill_diagonal_(-1)
        scores.append((labels[sim.argmax(1)] == labels).float().mean().item())
    return scores


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--layers", type=int, default=6)
    ap.add_argument("--hidden", type=int, default=512)
    ap.add_argument("--length", type=int, default=192)
    ap.add_argument("--max-steps", type=int, default=200)
    ap.add_argument("--eval-size", type=int, default=3200)
    ap.add_argument("--output-dir", default="/tmp/hf_layer_probe")
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO)
    set_seed(17)

    config = BertConfig(
        vocab_size=8000,
        hidden_size=args.hidden,
        num_hidden_layers=args.layers,
        num_attention_heads=8,
        intermediate_size=4 * args.hidden,
        num_labels=NUM_QUEUES,
        output_hidden_states=True,  # HERE
    )
    model = BertForSequenceClassification(config)
    train_set = TicketDataset(2000, args.length, config.vocab_size, seed=1)
    eval_set = TicketDataset(args.eval_size, args.length, config.vocab_size, seed=2)

    training_args = TrainingArguments(
        output_dir=args.output_dir,
        per_device_train_batch_size=16,
        per_device_eval_batch_size=32,
        max_steps=args.max_steps,
        learning_rate=5e-5,
        eval_strategy="steps",
        eval_steps=60,
        logging_steps=20,
        save_strategy="no",
        report_to="none",
    )
    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=train_set,
        eval_dataset=eval_set,
        compute_metrics=compute_metrics,
    )
    trainer.train()
    logger.info("final metrics %s", trainer.evaluate())
    for i, acc in enumerate(probe_layers(model, eval_set)):
        logger.info("layer %d centroid accuracy %.3f", i, acc)


if __name__ == "__main__":
    main()
