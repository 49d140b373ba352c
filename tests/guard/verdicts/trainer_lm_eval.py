"""Small GPT-2 from scratch with the HF Trainer, token accuracy on a validation split."""
import tempfile

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed


class TokenBlocks(Dataset):
    def __init__(self, count, length, vocab, seed):
        gen = torch.Generator().manual_seed(seed)
        self.ids = torch.randint(0, vocab, (count, length), generator=gen)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.ids[i]}


def token_accuracy(prediction):
    guess = np.argmax(prediction.predictions[:, :-1], axis=-1)
    return {"token_accuracy": float((guess == prediction.label_ids[:, 1:]).mean())}


def main():
    set_seed(17)
    config = GPT2Config(n_embd=256, n_layer=4, n_head=4, n_positions=256)
    model = GPT2LMHeadModel(config)
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        max_steps=10,
        per_device_train_batch_size=2,
        per_device_eval_batch_size=8,
        learning_rate=5e-4,
        logging_steps=5,
        save_strategy="no",
        report_to="none",
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=TokenBlocks(64, 256, config.vocab_size, seed=1),
        eval_dataset=TokenBlocks(160, 256, config.vocab_size, seed=2),
        compute_metrics=token_accuracy,
    )
    trainer.train()
    print("training finished, evaluating", flush=True)
    print(trainer.evaluate())  # HERE


if __name__ == "__main__":
    main()
