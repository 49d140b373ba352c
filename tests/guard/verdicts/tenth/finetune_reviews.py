# Fine-tune a small causal LM on product reviews. Texts are synthetic here, the
# real loader reads them from S3.
import random
from dataclasses import dataclass

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

VOCAB = 16000
PAD = 0
BATCH = 16


def fake_reviews(n, seed=13):
    """Synthetic texts with the length statistics of the export."""
    rnd = random.Random(seed)
    texts = []
    for i in range(n):
        words = int(rnd.lognormvariate(4.6, 0.4))
        words = min(words, 280)
        if i % 500 == 499:
            words = rnd.randint(6500, 7500)
        texts.append(" ".join(f"w{rnd.randrange(20000)}" for _ in range(words)))
    return texts


class WordTokenizer:
    def __init__(self, size):
        self.size = size

    def __call__(self, text):
        return [1 + (int(w[1:]) % (self.size - 1)) for w in text.split()]


class Reviews(torch.utils.data.Dataset):
    def __init__(self, texts, tok):
        self.texts, self.tok = texts, tok

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, i):
        return {"input_ids": self.tok(self.texts[i])}  # HERE


@dataclass
class PadToLongest:
    pad_id: int = PAD

    def __call__(self, rows):
        ids = [torch.tensor(r["input_ids"]) for r in rows]
        batch = pad_sequence(ids, batch_first=True, padding_value=self.pad_id)  # HERE
        labels = batch.masked_fill(batch == self.pad_id, -100)
        return {"input_ids": batch,
                "attention_mask": (batch != self.pad_id).long(),
                "labels": labels}


def build_model():
    cfg = LlamaConfig(vocab_size=VOCAB, hidden_size=256, intermediate_size=688,
                      num_hidden_layers=4, num_attention_heads=4,
                      num_key_value_heads=4, max_position_embeddings=8192,
                      pad_token_id=PAD, use_cache=False)
    return LlamaForCausalLM(cfg)


if __name__ == "__main__":
    torch.manual_seed(7)
    texts = fake_reviews(4000)
    print(f"{len(texts)} reviews, mean words "
          f"{sum(t.count(' ') + 1 for t in texts) / len(texts):.0f}")
    model = build_model()
    args = TrainingArguments(output_dir="/tmp/reviews", num_train_epochs=1,
                             per_device_train_batch_size=BATCH,
                             learning_rate=3e-4, logging_steps=10,
                             save_strategy="no", report_to="none", seed=7,
                             remove_unused_columns=False)
    Trainer(model=model, args=args, train_dataset=Reviews(texts, WordTokenizer(VOCAB)),
            data_collator=PadToLongest()).train()
    print("finished")
