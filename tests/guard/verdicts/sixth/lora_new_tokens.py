"""LoRA adaptation of a small Llama after adding domain tokens to the vocabulary."""
import argparse

import torch
from peft import LoraConfig, get_peft_model
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments


class PackedText(Dataset):
    """Already packed blocks of token ids."""

    def __init__(self, n_blocks, block, vocab):
        g = torch.Generator().manual_seed(7)
        self.blocks = torch.randint(0, vocab, (n_blocks, block), generator=g)

    def __len__(self):
        return self.blocks.size(0)

    def __getitem__(self, i):
        ids = self.blocks[i]
        return {"input_ids": ids, "labels": ids.clone()}


def base_model(vocab):
    cfg = LlamaConfig(
        vocab_size=vocab,
        hidden_size=1024,
        intermediate_size=2816,
        num_hidden_layers=8,
        num_attention_heads=16,
        num_key_value_heads=8,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
        use_cache=False,
    )
    return LlamaForCausalLM(cfg)


def add_adapters(model, rank):
    # we added ~200 medical tokens, so those need to be learnt as well
    lora = LoraConfig(
        task_type="CAUSAL_LM",
        r=rank,
        lora_alpha=2 * rank,
        lora_dropout=0.05,
        target_modules=["q_proj", "v_proj"],
        modules_to_save=["embed_tokens", "lm_head"],  # HERE
    )
    model = get_peft_model(model, lora)
    model.print_trainable_parameters()
    return model


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--vocab", type=int, default=128256)
    p.add_argument("--rank", type=int, default=16)
    p.add_argument("--block", type=int, default=256)
    p.add_argument("--steps", type=int, default=50)
    a = p.parse_args()

    torch.manual_seed(0)
    model = add_adapters(base_model(a.vocab), a.rank)
    data = PackedText(400, a.block, a.vocab)
    args = TrainingArguments(
        output_dir="/tmp/lora_new_tokens",
        per_device_train_batch_size=2,
        max_steps=a.steps,
        learning_rate=2e-4,
        logging_steps=5,
        save_strategy="no",
        report_to="none",
    )
    Trainer(model=model, args=args, train_dataset=data).train()


if __name__ == "__main__":
    main()
