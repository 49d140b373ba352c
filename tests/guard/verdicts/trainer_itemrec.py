"""Next-item recommendation with a GRU and sampled negatives, trained by the HF Trainer."""
import os
import tempfile

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments, set_seed

ITEMS = int(os.environ.get("ITEMS", 1_500_000))
DIM, HISTORY = 256, 30


class Visits(Dataset):
    """Each user looks at items near a favourite one."""

    def __init__(self, users, seed):
        gen = torch.Generator().manual_seed(seed)
        favourite = torch.randint(0, ITEMS, (users, 1), generator=gen)
        drift = torch.randint(-50, 50, (users, HISTORY + 1), generator=gen)
        self.items = (favourite + drift) % ITEMS
        self.negatives = torch.randint(0, ITEMS, (users, 20), generator=gen)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        row = self.items[i]
        return {"history": row[:-1], "positive": row[-1], "negative": self.negatives[i]}


class ItemEncoder(nn.Module):
    def __init__(self, items, dim):
        super().__init__()
        self.table = nn.Embedding(items, dim)  # HERE
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, ids):
        return self.table(ids) * self.scale


class SessionModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.items = ItemEncoder(ITEMS, DIM)
        self.gru = nn.GRU(DIM, DIM, batch_first=True)
        self.head = nn.Linear(DIM, DIM)

    def user(self, history):
        _, last = self.gru(self.items(history))
        return self.head(last[0])

    def forward(self, history, positive, negative):
        user = self.user(history)
        good = (user * self.items(positive)).sum(-1, keepdim=True)
        bad = torch.einsum("bd,bkd->bk", user, self.items(negative))
        loss = -F.logsigmoid(good - bad).mean()
        return {"loss": loss, "score": good.squeeze(-1)}


class PrintLoss(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if logs and "loss" in logs:
            print(f"step {state.global_step} loss {logs['loss']}", flush=True)


def collate(rows):
    return {key: torch.stack([row[key] for row in rows]) for key in rows[0]}


def describe(model):
    for name, p in model.named_parameters():
        if p.numel() > 100_000:
            print(f"{name}: {tuple(p.shape)}", flush=True)


def main():
    set_seed(9)
    model = SessionModel()
    describe(model)
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        num_train_epochs=1,
        per_device_train_batch_size=256,
        learning_rate=1e-3,
        optim="sgd",
        max_grad_norm=0.0,
        logging_steps=5,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=model, args=args, train_dataset=Visits(20_000, seed=2), data_collator=collate, callbacks=[PrintLoss()]
    )
    print("training starts", flush=True)
    trainer.train()  # HERE
    print("done", flush=True)


if __name__ == "__main__":
    main()
