"""Domain-adapts a small masked language model to clinic notes with the Hugging Face Trainer."""
import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForMaskedLM, Trainer, TrainingArguments, set_seed

VOCAB = 30522
MASK = 103


class Notes(Dataset):
    def __init__(self, count, length, seed):
        gen = torch.Generator().manual_seed(seed)
        start = torch.randint(200, VOCAB - 4000, (count, 1), generator=gen)
        steps = torch.randint(0, 30, (count, length), generator=gen)
        self.ids = start + steps.cumsum(1) % 3500

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return self.ids[i]


class MaskTokens:
    def __init__(self, probability=0.15, seed=3):
        self.probability = probability
        self.gen = torch.Generator().manual_seed(seed)

    def __call__(self, rows):
        ids = torch.stack(rows)
        chosen = torch.rand(ids.shape, generator=self.gen) < self.probability
        labels = torch.where(chosen, ids, torch.full_like(ids, -100))
        ids = torch.where(chosen, torch.full_like(ids, MASK), ids)
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}


def small_bert():
    config = BertConfig(
        vocab_size=VOCAB, hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024,
    )
    return BertForMaskedLM(config)


def main():
    set_seed(11)
    settings = TrainingArguments(
        output_dir="/tmp/clinic_notes",
        max_steps=400,
        per_device_train_batch_size=16,
        per_device_eval_batch_size=512,  # HERE
        learning_rate=2e-4,
        warmup_steps=20,
        eval_strategy="steps",
        eval_steps=40,
        prediction_loss_only=True,
        logging_steps=20,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=small_bert(),
        args=settings,
        data_collator=MaskTokens(),
        train_dataset=Notes(20_000, 128, seed=1),
        eval_dataset=Notes(2_048, 128, seed=2),
    )
    trainer.train()
    print(trainer.evaluate())


if __name__ == "__main__":
    main()
