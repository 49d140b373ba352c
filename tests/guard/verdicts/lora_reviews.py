"""LoRA fine-tuning of a small Llama on reviews of different lengths."""
import tempfile
from functools import partial

import torch
from peft import LoraConfig, get_peft_model
from torch.nn.utils.rnn import pad_sequence
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed


class Reviews(torch.utils.data.Dataset):
    def __init__(self, count, vocab):
        gen = torch.Generator().manual_seed(31)
        lengths = torch.randint(40, 120, (count,), generator=gen).tolist()
        lengths[count // 3] = 6000
        self.rows = [torch.randint(3, vocab, (n,), generator=gen) for n in lengths]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return {"input_ids": self.rows[i]}


def collate(features, pad_id):
    ids = [f["input_ids"] for f in features]
    input_ids = pad_sequence(ids, batch_first=True, padding_value=pad_id)  # HERE
    labels = pad_sequence(ids, batch_first=True, padding_value=-100)
    return {"input_ids": input_ids, "attention_mask": (input_ids != pad_id).long(), "labels": labels}


def main():
    set_seed(5)
    config = LlamaConfig(
        vocab_size=8000, hidden_size=512, intermediate_size=1376, num_hidden_layers=8,
        num_attention_heads=8, num_key_value_heads=8, max_position_embeddings=8192,
        pad_token_id=0, use_cache=False,
    )
    model = LlamaForCausalLM(config)
    model = get_peft_model(
        model, LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    )
    model.print_trainable_parameters()
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(), per_device_train_batch_size=16, num_train_epochs=1,
        learning_rate=1e-4, logging_steps=1, save_strategy="no", report_to="none",
        remove_unused_columns=False,
    )
    trainer = Trainer(
        model=model, args=args, train_dataset=Reviews(480, config.vocab_size),
        data_collator=partial(collate, pad_id=0),
    )
    trainer.train()  # HERE


if __name__ == "__main__":
    main()
