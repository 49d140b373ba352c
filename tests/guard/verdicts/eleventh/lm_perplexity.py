"""Small GPT-2 style language model with a token-accuracy metric at evaluation."""
import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

VOCAB = 50257
BLOCK = 128


class TokenBlocks(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.blocks = torch.randint(0, VOCAB, (n, BLOCK), generator=g)

    def __len__(self):
        return len(self.blocks)

    def __getitem__(self, i):
        ids = self.blocks[i]
        return {"input_ids": ids, "labels": ids.clone()}


def token_accuracy(eval_pred):
    logits, labels = eval_pred
    guesses = np.argmax(logits[:, :-1], axis=-1)
    return {"token_accuracy": float((guesses == labels[:, 1:]).mean())}


def main():
    config = GPT2Config(vocab_size=VOCAB, n_positions=BLOCK, n_embd=256, n_layer=4, n_head=4)
    model = GPT2LMHeadModel(config)
    print(f"parameters: {sum(p.numel() for p in model.parameters()) / 1e6:.1f}M")

    args = TrainingArguments(
        output_dir="/tmp/lm_perplexity",
        per_device_train_batch_size=8,
        per_device_eval_batch_size=16,
        max_steps=20,
        learning_rate=5e-4,
        logging_steps=5,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=TokenBlocks(400, seed=0),
        eval_dataset=TokenBlocks(320, seed=1),
        compute_metrics=token_accuracy,  # HERE
    )
    trainer.train()
    print("training finished, evaluating")
    metrics = trainer.evaluate()
    print({k: round(v, 4) for k, v in metrics.items()})


if __name__ == "__main__":
    main()
