import math
import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

set_seed(11)
VOCAB, SEQ = 32000, 256


class Synthetic(Dataset):
    """Zipf tokens with a copy pattern so there is something to learn."""

    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        a = np.minimum(rng.zipf(1.3, size=(n, SEQ // 2)), VOCAB - 1)
        self.ids = torch.from_numpy(np.concatenate([a, a], axis=1)).long()

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.ids[i]}


def compute_metrics(p):
    logits, labels = p.predictions[:, :-1], p.label_ids[:, 1:]
    pred = logits.argmax(-1)
    half = SEQ // 2
    return {"token_acc": float((pred == labels).mean()),
            "copy_acc": float((pred[:, half:] == labels[:, half:]).mean())}


config = GPT2Config(vocab_size=VOCAB, n_positions=SEQ, n_embd=256, n_layer=4, n_head=4,
                    bos_token_id=0, eos_token_id=0)
model = GPT2LMHeadModel(config)

args = TrainingArguments(
    output_dir="/tmp/gpt2_copy",
    per_device_train_batch_size=8,
    per_device_eval_batch_size=8,
    learning_rate=5e-4,
    max_steps=400,
    eval_strategy="steps",
    eval_steps=150,
    logging_steps=25,
    save_strategy="no",
    report_to="none",
)

trainer = Trainer(
    model=model,
    args=args,
    train_dataset=Synthetic(4000, 0),
    eval_dataset=Synthetic(320, 1),
    compute_metrics=compute_metrics,  # HERE
)
trainer.train()  # HERE
print("perplexity", math.exp(trainer.evaluate()["eval_loss"]))
