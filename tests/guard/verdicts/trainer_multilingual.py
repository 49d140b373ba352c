"""Llama-style model with a multilingual tokenizer's vocabulary, HF Trainer, bf16."""
import tempfile

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed

SEQ_LEN = 1024


class Corpus(torch.utils.data.Dataset):
    def __init__(self, n_docs, vocab_size):
        generator = torch.Generator().manual_seed(2024)
        self.docs = torch.randint(0, vocab_size, (n_docs, SEQ_LEN), generator=generator)

    def __len__(self):
        return len(self.docs)

    def __getitem__(self, index):
        ids = self.docs[index]
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids.clone()}


if __name__ == "__main__":
    set_seed(0)
    config = LlamaConfig(
        vocab_size=256_000,
        hidden_size=512,
        intermediate_size=1376,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=8,
        max_position_embeddings=SEQ_LEN,
        tie_word_embeddings=True,
        use_cache=False,
    )
    model = LlamaForCausalLM(config)
    print(f"parameters: {model.num_parameters() / 1e6:.1f}M")
    training_args = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=4,
        num_train_epochs=1,
        learning_rate=2e-4,
        bf16=True,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
    )
    trainer = Trainer(model=model, args=training_args, train_dataset=Corpus(400, config.vocab_size))
    result = trainer.train()  # HERE
    print(result.metrics)
