"""Continue pre-training of an in-house 0.5B decoder with the HF Trainer."""
import argparse
import logging

import torch
from torch.utils.data import IterableDataset
from transformers import AutoModelForCausalLM, LlamaConfig, Trainer, TrainingArguments

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("pretrain")


class PackedTokens(IterableDataset):
    """Endless stream of packed blocks (stand-in for the memory-mapped corpus)."""

    def __init__(self, vocab_size: int, block: int, seed: int = 0):
        super().__init__()
        self.vocab_size = vocab_size
        self.block = block
        self.seed = seed

    def __iter__(self):
        g = torch.Generator().manual_seed(self.seed)
        while True:
            ids = torch.randint(0, self.vocab_size, (self.block,), generator=g)
            yield {"input_ids": ids, "labels": ids.clone()}


def get_config(args) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=args.vocab_size,
        hidden_size=args.hidden,
        intermediate_size=args.hidden * 8 // 3,
        num_hidden_layers=args.layers,
        num_attention_heads=args.hidden // 128,
        num_key_value_heads=args.hidden // 128,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        use_cache=False,
    )


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--vocab-size", type=int, default=16000)
    ap.add_argument("--hidden", type=int, default=1536)
    ap.add_argument("--layers", type=int, default=16)
    ap.add_argument("--block", type=int, default=128)
    ap.add_argument("--steps", type=int, default=30)
    args = ap.parse_args()

    config = get_config(args)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = AutoModelForCausalLM.from_config(config)
    log.info("model has %.0fM parameters", model.num_parameters() / 1e6)

    targs = TrainingArguments(
        output_dir="/tmp/pretrain_half_b",
        per_device_train_batch_size=2,
        max_steps=args.steps,
        optim="adamw_torch",  # HERE
        learning_rate=1e-4,
        warmup_steps=5,
        max_grad_norm=0.0,
        logging_steps=5,
        save_strategy="no",
        report_to="none",
    )
    trainer = Trainer(model=model, args=targs,
                      train_dataset=PackedTokens(args.vocab_size, args.block))
    out = trainer.train()
    log.info("final loss %.3f", out.training_loss)


if __name__ == "__main__":
    main()
