"""Causal LM pre-training with extra statistics in the log (entropy, top-1 accuracy)."""
from collections import defaultdict

import torch
import torch.nn.functional as F
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

VOCAB = 16000
BLOCK = 256


class Corpus(Dataset):
    def __init__(self, n=4000):
        g = torch.Generator().manual_seed(3)
        # zipf-like ids, a bit closer to text than uniform ones
        u = torch.rand(n, BLOCK, generator=g)
        self.ids = (VOCAB ** u).long().clamp_(max=VOCAB - 1)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.ids[i].clone()}


class StatsTrainer(Trainer):
    """Trainer that reports the mean of some statistics since the last log line."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.running = defaultdict(list)

    def _token_stats(self, logits, labels):
        logits = logits[:, :-1]
        target = labels[:, 1:]
        logp = F.log_softmax(logits.float(), dim=-1)
        entropy = -(logp.exp() * logp).sum(-1).mean()
        top1 = (logits.argmax(-1) == target).float().mean()
        return entropy, top1

    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True, **kwargs)
        entropy, top1 = self._token_stats(outputs.logits, inputs["labels"])
        self.running["entropy"].append(entropy)  # HERE
        self.running["top1"].append(top1)
        return (loss, outputs) if return_outputs else loss

    def log(self, logs, *args, **kwargs):
        for key, values in self.running.items():
            if values:
                logs[key] = round(torch.stack(values).mean().item(), 4)
        self.running.clear()
        super().log(logs, *args, **kwargs)


def main():
    config = GPT2Config(vocab_size=VOCAB, n_positions=BLOCK, n_embd=256,
                        n_layer=4, n_head=4, resid_pdrop=0.0, attn_pdrop=0.0,
                        embd_pdrop=0.0, bos_token_id=0, eos_token_id=0)
    model = GPT2LMHeadModel(config)
    args = TrainingArguments(
        output_dir="/tmp/gpt_entropy",
        per_device_train_batch_size=4,
        max_steps=600,
        learning_rate=6e-4,
        logging_steps=100,
        save_strategy="no",
        report_to="none",
    )
    trainer = StatsTrainer(model=model, args=args, train_dataset=Corpus())
    trainer.train()


if __name__ == "__main__":
    main()
