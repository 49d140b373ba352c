"""BERT masked-language pre-training from scratch; details of every batch go to a buffered debug log."""
import logging
import logging.handlers
import os
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForMaskedLM, Trainer, TrainingArguments, set_seed

VOCAB, LENGTH = int(os.environ.get("VOCAB", 30522)), 256
MASK_ID, IGNORE = 103, -100


def open_debug_log(folder):
    """Writing each line at once slowed the training down, so lines are written in blocks."""
    target = logging.FileHandler(os.path.join(folder, "debug.log"))
    target.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    log = logging.getLogger("batches")
    log.setLevel(logging.DEBUG)
    log.propagate = False
    log.addHandler(logging.handlers.MemoryHandler(capacity=5000, flushLevel=logging.ERROR, target=target))
    return log


class MaskedBlocks(Dataset):
    def __init__(self, count, seed):
        gen = torch.Generator().manual_seed(seed)
        self.ids = torch.randint(1000, VOCAB, (count, LENGTH), generator=gen)
        self.mask = torch.rand(count, LENGTH, generator=gen) < 0.15

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        ids, mask = self.ids[i], self.mask[i]
        return {
            "input_ids": ids.masked_fill(mask, MASK_ID),
            "attention_mask": torch.ones_like(ids),
            "labels": ids.masked_fill(~mask, IGNORE),
        }


class LoggingTrainer(Trainer):
    def __init__(self, *args, debug_log, **kwargs):
        super().__init__(*args, **kwargs)
        self.debug_log = debug_log
        self.batches_seen = 0

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        outputs = model(**inputs)
        loss, logits = outputs.loss, outputs.logits.detach()
        self.batches_seen += 1
        self.debug_log.debug("batch %d loss %s logits %s", self.batches_seen, loss.detach(), logits)  # HERE
        return (loss, outputs) if return_outputs else loss


def build_model():
    config = BertConfig(
        vocab_size=VOCAB, hidden_size=128, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=512, max_position_embeddings=LENGTH,
    )
    return BertForMaskedLM(config)


def main():
    set_seed(23)
    folder = tempfile.mkdtemp()
    args = TrainingArguments(
        output_dir=folder,
        max_steps=int(os.environ.get("STEPS", 400)),
        per_device_train_batch_size=8,
        learning_rate=3e-4,
        logging_steps=5,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    trainer = LoggingTrainer(
        model=build_model(),
        args=args,
        train_dataset=MaskedBlocks(4000, seed=1),
        debug_log=open_debug_log(folder),
    )
    result = trainer.train()
    print("final loss", result.training_loss)


if __name__ == "__main__":
    main()
