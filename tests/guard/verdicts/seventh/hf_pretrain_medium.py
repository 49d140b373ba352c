"""Pretrain a GPT-2 medium sized model on source-code tokens with Trainer."""
import logging
import sys
import tempfile
import time

import torch
from torch.utils.data import IterableDataset
from transformers import (GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback,
                          TrainingArguments, set_seed)

logging.basicConfig(level=logging.INFO, handlers=[logging.StreamHandler(sys.stdout)],
                    format="%(asctime)s | %(message)s")
log = logging.getLogger("pretrain")

CFG = {
    "model": {"vocab_size": 32000, "n_embd": 1024, "n_layer": 24, "n_head": 16, "n_positions": 512,
              "bos_token_id": 0, "eos_token_id": 0},
    "data": {"block": 64, "seed": 17},
    "train": {"batch": 1, "accum": 4, "lr": 1.5e-4, "steps": 400, "warmup": 40},
}


class CodeTokenStream(IterableDataset):
    """Endless stream of packed blocks."""

    def __init__(self, vocab, block, seed):
        self.vocab, self.block, self.seed = vocab, block, seed

    def __iter__(self):
        g = torch.Generator().manual_seed(self.seed)
        indent = torch.arange(4) + 10
        while True:
            ids = torch.randint(100, self.vocab, (self.block,), generator=g)
            for pos in range(0, self.block - 8, 16):
                ids[pos:pos + 4] = indent
            yield {"input_ids": ids, "labels": ids.clone()}


class Throughput(TrainerCallback):
    def __init__(self, tokens_per_step):
        self.tps = tokens_per_step
        self.t0 = None

    def on_step_begin(self, args, state, control, **kw):
        self.t0 = self.t0 or time.time()

    def on_log(self, args, state, control, logs=None, **kw):
        if state.global_step and logs and "loss" in logs:
            rate = state.global_step * self.tps / (time.time() - self.t0)
            log.info("step %d loss %.3f %.0f tok/s", state.global_step, float(logs["loss"]), rate)


def decay_groups(model, wd):
    decay = [p for p in model.parameters() if p.ndim >= 2]
    rest = [p for p in model.parameters() if p.ndim < 2]
    log.info("decayed tensors %d (%.1fM), others %d (%.2fM)",
             len(decay), sum(p.numel() for p in decay) / 1e6,
             len(rest), sum(p.numel() for p in rest) / 1e6)
    return [{"params": decay, "weight_decay": wd}, {"params": rest, "weight_decay": 0.0}]


def main():
    set_seed(0)
    t, d = CFG["train"], CFG["data"]
    model = GPT2LMHeadModel(GPT2Config(**CFG["model"], resid_pdrop=0.0, embd_pdrop=0.0,
                                       attn_pdrop=0.0, use_cache=False))
    model = model.to("cuda")
    optimizer = torch.optim.AdamW(decay_groups(model, 0.1), lr=t["lr"], betas=(0.9, 0.95))
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="gpt2m-"),
        per_device_train_batch_size=t["batch"],
        gradient_accumulation_steps=t["accum"],
        max_steps=t["steps"],
        warmup_steps=t["warmup"],
        learning_rate=t["lr"],
        lr_scheduler_type="cosine",
        logging_steps=5,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    sched = torch.optim.lr_scheduler.LinearLR(optimizer, 0.01, total_iters=t["warmup"])
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=CodeTokenStream(CFG["model"]["vocab_size"], d["block"], d["seed"]),
        optimizers=(optimizer, sched),
        callbacks=[Throughput(t["batch"] * t["accum"] * d["block"])],
    )
    trainer.train()  # HERE


if __name__ == "__main__":
    main()
