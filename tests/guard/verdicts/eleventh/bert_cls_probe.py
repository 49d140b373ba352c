"""Fine-tune a small BERT; at the end, look at how the sentence vectors spread over training."""
import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments


class Sentences(Dataset):
    def __init__(self, n=12800, length=256, vocab=12000):
        torch.manual_seed(3)
        self.ids = torch.randint(0, vocab, (n, length))
        self.labels = self.ids[:, :4].sum(1) % 2

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.labels[i]}


class ProbeTrainer(Trainer):
    """Trainer that records the sentence vector of each example seen."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.sentence_vectors = []

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        outputs = model(**inputs, output_hidden_states=True)
        cls = outputs.hidden_states[-1][:, 0].detach()
        self.sentence_vectors.append(cls)  # HERE
        return (outputs.loss, outputs) if return_outputs else outputs.loss

    def spread(self):
        first = torch.cat(self.sentence_vectors[:20])
        last = torch.cat(self.sentence_vectors[-20:])
        return first.std(0).mean().item(), last.std(0).mean().item()


def main():
    config = BertConfig(vocab_size=12000, hidden_size=512, num_hidden_layers=2,
                        num_attention_heads=8, intermediate_size=1024, num_labels=2)
    args = TrainingArguments(
        output_dir="/tmp/bert_probe",
        num_train_epochs=1,
        per_device_train_batch_size=32,
        learning_rate=1e-4,
        logging_steps=25,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    trainer = ProbeTrainer(model=BertForSequenceClassification(config), args=args,
                           train_dataset=Sentences())
    trainer.train()
    before, after = trainer.spread()
    print(f"spread of sentence vectors: {before:.3f} -> {after:.3f}")


if __name__ == "__main__":
    main()
