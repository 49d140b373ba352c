"""Fine-tunes a small BERT on topic labels; the final weights are a uniform soup of points along the run."""
import argparse

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments


class Topics(Dataset):
    """Token sequences whose topic is given by which part of the vocabulary they use most."""

    def __init__(self, count, length, vocab, topics, seed=0):
        gen = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(topics, (count,), generator=gen)
        band = vocab // topics
        noise = torch.randint(5, vocab, (count, length), generator=gen)
        topical = self.labels[:, None] * band + torch.randint(band, (count, length), generator=gen)
        mask = torch.rand(count, length, generator=gen) < 0.3
        self.ids = torch.where(mask, topical, noise)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        ids = self.ids[i]
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": self.labels[i]}


class ModelSoup(TrainerCallback):
    """Collects points of the trajectory and averages them when training is over."""

    def __init__(self, every):
        self.every = every
        self.ingredients = []

    def on_step_end(self, args, state, control, model=None, **kwargs):
        if state.global_step % self.every == 0:
            weights = {name: value.detach().clone() for name, value in model.state_dict().items()}
            self.ingredients.append(weights)  # HERE

    def on_train_end(self, args, state, control, model=None, **kwargs):
        if not self.ingredients:
            return
        soup = {}
        for name, value in model.state_dict().items():
            stacked = sum(point[name].double() for point in self.ingredients)
            soup[name] = (stacked / len(self.ingredients)).to(value.dtype)
        model.load_state_dict(soup)


class PrintLoss(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if logs and "loss" in logs:
            print(f"step {state.global_step} loss {float(logs['loss']):.3f}", flush=True)


def build_model(args):
    config = BertConfig(
        vocab_size=args.vocab, hidden_size=args.hidden, num_hidden_layers=args.layers,
        num_attention_heads=12, intermediate_size=4 * args.hidden, num_labels=args.topics,
    )
    return BertForSequenceClassification(config)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--vocab", type=int, default=30522)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--topics", type=int, default=20)
    parser.add_argument("--length", type=int, default=96)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--soup-every", type=int, default=10)
    args = parser.parse_args()
    torch.manual_seed(1)

    data = Topics(args.batch * 200, args.length, args.vocab, args.topics)
    settings = TrainingArguments(
        output_dir="/tmp/topic_trainer", per_device_train_batch_size=args.batch, max_steps=args.steps,
        learning_rate=3e-5, logging_steps=20, save_strategy="no", report_to="none", disable_tqdm=True,
        seed=1, dataloader_num_workers=0,
    )
    trainer = Trainer(
        model=build_model(args), args=settings, train_dataset=data,
        callbacks=[ModelSoup(args.soup_every), PrintLoss()],
    )
    trainer.train()


if __name__ == "__main__":
    main()
