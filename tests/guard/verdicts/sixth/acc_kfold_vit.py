"""10-fold cross-validation of a ViT on small microscopy crops."""
import gc
import json

import numpy as np
import timm
import torch
from accelerate import Accelerator
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import StratifiedKFold
from torch.utils.data import DataLoader, Subset, TensorDataset

EPOCHS = 1
BATCH = 16
N_CLASSES = 5


def make_dataset(n=640, size=96):
    g = torch.Generator().manual_seed(11)
    y = torch.randint(0, N_CLASSES, (n,), generator=g)
    x = torch.randn(n, 3, size, size, generator=g) + y.view(-1, 1, 1, 1) * 0.1
    return TensorDataset(x, y)


def new_model():
    return timm.create_model("vit_base_patch16_224", pretrained=False, img_size=96,
                             num_classes=N_CLASSES)


def train_epoch(accelerator, model, optimizer, loader):
    model.train()
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()


@torch.inference_mode()
def predict(model, loader):
    model.eval()
    hits = [(model(x).argmax(-1).cpu().numpy(), y.cpu().numpy()) for x, y in loader]
    return np.concatenate([h[0] for h in hits]), np.concatenate([h[1] for h in hits])


def run_fold(accelerator, data, train_idx, test_idx):
    model = new_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.05)
    train = DataLoader(Subset(data, train_idx), batch_size=BATCH, shuffle=True)
    test = DataLoader(Subset(data, test_idx), batch_size=BATCH)
    model, optimizer, train, test = accelerator.prepare(model, optimizer, train, test)  # HERE
    for epoch in range(EPOCHS):
        last = train_epoch(accelerator, model, optimizer, train)
        accelerator.print(f"  epoch {epoch}: loss {last:.3f}", flush=True)
    pred, true = predict(model, test)
    score = balanced_accuracy_score(true, pred)
    # free everything before the next fold
    del model, optimizer, train, test
    gc.collect()
    torch.cuda.empty_cache()
    return score


def main():
    accelerator = Accelerator()
    data = make_dataset()
    labels = data.tensors[1].numpy()
    folds = StratifiedKFold(n_splits=10, shuffle=True, random_state=0)
    scores = []
    for k, (tr, te) in enumerate(folds.split(np.zeros(len(labels)), labels)):
        accelerator.print(f"fold {k}")
        scores.append(run_fold(accelerator, data, tr, te))
    accelerator.print(json.dumps({"mean": float(np.mean(scores)), "folds": scores}))


if __name__ == "__main__":
    main()
