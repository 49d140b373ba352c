"""Causal language model on tokenised source code, Hugging Face Trainer with dataclass arguments."""
from dataclasses import dataclass, field

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, HfArgumentParser, Trainer, TrainingArguments


@dataclass
class ModelArguments:
    vocab_size: int = field(default=32000)
    n_embd: int = field(default=384)
    n_layer: int = field(default=4)
    n_head: int = field(default=6)
    block_size: int = field(default=512)


@dataclass
class RunArguments:
    train_batch: int = field(default=4, metadata={"help": "sequences per step"})
    eval_batch: int = field(default=64, metadata={"help": "sequences per evaluation step"})  # HERE
    max_steps: int = field(default=300)
    eval_every: int = field(default=80)
    learning_rate: float = field(default=6e-4)
    output_dir: str = field(default="/tmp/hf_code_lm")


class PackedCode(Dataset):
    """Fixed-length blocks cut from one long token stream."""

    def __init__(self, blocks, block_size, vocab, seed):
        g = torch.Generator().manual_seed(seed)
        stream = torch.randint(0, vocab, (blocks * block_size // 4,), generator=g)
        self.stream = stream.repeat(4)
        self.block_size = block_size
        self.blocks = blocks

    def __len__(self):
        return self.blocks

    def __getitem__(self, i):
        ids = self.stream[i * self.block_size:(i + 1) * self.block_size]
        return {"input_ids": ids, "labels": ids}


def count_parameters(model):
    total = sum(p.numel() for p in model.parameters())
    tied = model.get_output_embeddings().weight.numel()
    return total, total - tied


def main():
    parser = HfArgumentParser((ModelArguments, RunArguments))
    margs, rargs = parser.parse_args_into_dataclasses()

    config = GPT2Config(
        vocab_size=margs.vocab_size,
        n_positions=margs.block_size,
        n_embd=margs.n_embd,
        n_layer=margs.n_layer,
        n_head=margs.n_head,
        bos_token_id=0,
        eos_token_id=0,
        use_cache=False,
    )
    model = GPT2LMHeadModel(config)
    total, body = count_parameters(model)
    print(f"parameters: {total / 1e6:.1f}M ({body / 1e6:.1f}M without embeddings)")

    train_set = PackedCode(4000, margs.block_size, margs.vocab_size, seed=0)
    eval_set = PackedCode(512, margs.block_size, margs.vocab_size, seed=1)

    training_args = TrainingArguments(
        output_dir=rargs.output_dir,
        max_steps=rargs.max_steps,
        per_device_train_batch_size=rargs.train_batch,
        per_device_eval_batch_size=rargs.eval_batch,  # HERE
        learning_rate=rargs.learning_rate,
        warmup_steps=30,
        lr_scheduler_type="cosine",
        weight_decay=0.1,
        eval_strategy="steps",
        eval_steps=rargs.eval_every,
        prediction_loss_only=True,
        logging_steps=20,
        save_strategy="no",
        report_to="none",
    )
    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=train_set,
        eval_dataset=eval_set,
    )
    trainer.train()
    metrics = trainer.evaluate()
    print("bits per token", metrics["eval_loss"] / 0.6931)


if __name__ == "__main__":
    main()
