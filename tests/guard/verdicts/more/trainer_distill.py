import torch
import torch.nn.functional as F
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainingArguments,
    set_seed,
)

MAX_LEN = 256
NUM_LABELS = 5
VOCAB = 30522

TEACHER = dict(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)
STUDENT = dict(hidden_size=384, num_hidden_layers=6, num_attention_heads=6, intermediate_size=1536)


class Reviews(Dataset):
    """Random token ids with a weak signal in the first tokens."""

    def __init__(self, n, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.ids = torch.randint(1000, VOCAB, (n, MAX_LEN), generator=g)
        self.labels = torch.randint(NUM_LABELS, (n,), generator=g)
        self.ids[:, 1] = 200 + self.labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return {
            "input_ids": self.ids[i],
            "attention_mask": torch.ones(MAX_LEN, dtype=torch.long),
            "labels": self.labels[i],
        }


class DistillationTrainer(Trainer):
    def __init__(self, *args, teacher, temperature=2.0, alpha=0.5, **kwargs):
        super().__init__(*args, **kwargs)
        self.teacher = teacher.to(self.args.device).eval()
        self.temperature = temperature
        self.alpha = alpha

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        teacher_logits = self.teacher(  # HERE
            input_ids=inputs["input_ids"],
            attention_mask=inputs["attention_mask"],
        ).logits
        outputs = model(**inputs)
        t = self.temperature
        soft = F.kl_div(
            F.log_softmax(outputs.logits / t, dim=-1),
            F.softmax(teacher_logits / t, dim=-1),
            reduction="batchmean",
        ) * t * t
        loss = self.alpha * outputs.loss + (1 - self.alpha) * soft
        return (loss, outputs) if return_outputs else loss


def build(spec):
    config = BertConfig(
        vocab_size=VOCAB,
        num_labels=NUM_LABELS,
        max_position_embeddings=MAX_LEN,
        **spec,
    )
    return BertForSequenceClassification(config)


def compute_metrics(pred):
    return {"accuracy": float((pred.predictions.argmax(-1) == pred.label_ids).mean())}


def main():
    set_seed(7)
    teacher, student = build(TEACHER), build(STUDENT)
    print(f"teacher {teacher.num_parameters() / 1e6:.0f}M, student {student.num_parameters() / 1e6:.0f}M")

    args = TrainingArguments(
        output_dir="/tmp/distill-out",
        per_device_train_batch_size=32,
        per_device_eval_batch_size=32,
        max_steps=300,
        learning_rate=1e-4,
        warmup_steps=30,
        logging_steps=10,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    trainer = DistillationTrainer(
        model=student,
        args=args,
        train_dataset=Reviews(6000),
        eval_dataset=Reviews(400, seed=1),
        compute_metrics=compute_metrics,
        teacher=teacher,
    )
    trainer.train()
    print(trainer.evaluate())


if __name__ == "__main__":
    main()
