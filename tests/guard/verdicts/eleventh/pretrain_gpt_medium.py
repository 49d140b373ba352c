import torch
from torch.utils.data import Dataset
from transformers import AutoModelForCausalLM, GPT2Config, Trainer, TrainingArguments


class RandomText(Dataset):
    def __init__(self, size, seq_len, vocab):
        self.size, self.seq_len, self.vocab = size, seq_len, vocab

    def __len__(self):
        return self.size

    def __getitem__(self, idx):
        g = torch.Generator().manual_seed(idx)
        ids = torch.randint(0, self.vocab, (self.seq_len,), generator=g)
        return dict(input_ids=ids, labels=ids)


config = GPT2Config(
    vocab_size=16384,
    n_positions=256,
    n_embd=1280,
    n_layer=22,
    n_head=20,
)


def main():
    model = AutoModelForCausalLM.from_config(config)
    n = sum(p.numel() for p in model.parameters())
    print(f"{n / 1e6:.0f}M parameters")

    args = TrainingArguments(
        output_dir="/tmp/gpt_medium",
        max_steps=12,
        per_device_train_batch_size=1,
        learning_rate=1e-4,
        optim="adamw_torch",  # HERE
        lr_scheduler_type="constant",
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    trainer = Trainer(model=model, args=args, train_dataset=RandomText(64, 128, config.vocab_size))
    result = trainer.train()
    print("final loss", round(result.training_loss, 3))


if __name__ == "__main__":
    main()
