"""5-fold cross validation of a protein localisation classifier (BERT encoder)."""
import argparse
import tempfile

import numpy as np
import torch
from torch.utils.data import Dataset, Subset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

AMINO = "ACDEFGHIKLMNPQRSTVWY"
COMPARTMENTS = ["nucleus", "cytoplasm", "membrane", "mitochondrion", "secreted"]


class ProteinSet(Dataset):
    def __init__(self, n, length, seed=0):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, len(COMPARTMENTS), n)
        self.seqs = rng.integers(5, 5 + len(AMINO), (n, length))
        for i, y in enumerate(self.labels):
            self.seqs[i, : 4 + y] = 5 + y
        self.seqs[:, 0] = 2

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        ids = torch.as_tensor(self.seqs[i], dtype=torch.long)
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids),
                "labels": int(self.labels[i])}


def kfold(n, k, seed):
    perm = np.random.default_rng(seed).permutation(n)
    folds = np.array_split(perm, k)
    for i in range(k):
        train = np.concatenate([f for j, f in enumerate(folds) if j != i])
        yield train.tolist(), folds[i].tolist()


def accuracy(eval_pred):
    logits, labels = eval_pred
    return {"accuracy": float((logits.argmax(-1) == labels).mean())}


def make_trainer(train, valid, args, fold):
    cfg = BertConfig(vocab_size=30, hidden_size=768, num_hidden_layers=12, num_attention_heads=12,
                     intermediate_size=3072, max_position_embeddings=args.length,
                     num_labels=len(COMPARTMENTS))
    torch.manual_seed(100 + fold)
    targs = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix=f"fold{fold}-"),
        per_device_train_batch_size=8,
        per_device_eval_batch_size=16,
        max_steps=args.steps,
        learning_rate=args.lr,
        logging_steps=10,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        seed=fold,
    )
    return Trainer(model=BertForSequenceClassification(cfg), args=targs, train_dataset=train,
                   eval_dataset=valid, compute_metrics=accuracy)


def ensemble_predict(runs, data):
    probs = []
    for r in runs:
        logits = r["trainer"].predict(data).predictions
        e = np.exp(logits - logits.max(-1, keepdims=True))
        probs.append(e / e.sum(-1, keepdims=True))
    return np.mean(probs, axis=0)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--n", type=int, default=600)
    ap.add_argument("--length", type=int, default=96)
    ap.add_argument("--folds", type=int, default=5)
    ap.add_argument("--steps", type=int, default=40)
    ap.add_argument("--lr", type=float, default=3e-5)
    args = ap.parse_args()

    data = ProteinSet(args.n, args.length)
    holdout = ProteinSet(128, args.length, seed=77)
    runs = []
    for fold, (tr, va) in enumerate(kfold(len(data), args.folds, seed=0)):
        trainer = make_trainer(Subset(data, tr), Subset(data, va), args, fold)
        trainer.train()
        metrics = trainer.evaluate()
        print(f"fold {fold}: acc {metrics['eval_accuracy']:.3f} loss {metrics['eval_loss']:.3f}")
        runs.append({"fold": fold, "trainer": trainer, "metrics": metrics})  # HERE
    accs = [r["metrics"]["eval_accuracy"] for r in runs]
    print(f"cv accuracy {np.mean(accs):.3f} +- {np.std(accs):.3f}")
    ens = ensemble_predict(runs, holdout)
    print("ensemble accuracy", float((ens.argmax(-1) == holdout.labels).mean()))


if __name__ == "__main__":
    main()
