import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Faces(Dataset):
    def __init__(self, n):
        self.n = n
        self.bank = torch.rand(256, 3, 128, 128)

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return self.bank[i % 256]


class AutoEncoder(pl.LightningModule):
    def __init__(self, ch=32, lr=1e-3):
        super().__init__()
        self.lr = lr
        self.encoder = nn.Sequential(
            nn.Conv2d(3, ch, 4, 2, 1), nn.ReLU(),
            nn.Conv2d(ch, ch * 2, 4, 2, 1), nn.ReLU(),
            nn.Conv2d(ch * 2, ch * 4, 4, 2, 1),
        )
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(ch * 4, ch * 2, 4, 2, 1), nn.ReLU(),
            nn.ConvTranspose2d(ch * 2, ch, 4, 2, 1), nn.ReLU(),
            nn.ConvTranspose2d(ch, 3, 4, 2, 1), nn.Sigmoid(),
        )
        self.training_step_outputs = []

    def forward(self, x):
        return self.decoder(self.encoder(x))

    def training_step(self, batch, batch_idx):
        recon = self(batch)
        loss = F.mse_loss(recon, batch)
        self.training_step_outputs.append({"loss": loss.detach(), "recon": recon.detach()})  # HERE
        if batch_idx % 20 == 0:
            print(f"step {batch_idx}: mse {loss.item():.4f}", flush=True)
        return loss

    def on_train_epoch_end(self):
        mean = torch.stack([o["loss"] for o in self.training_step_outputs]).mean()
        sample = self.training_step_outputs[-1]["recon"][:8]
        print(f"epoch {self.current_epoch}: mse {mean:.4f}, sample mean {sample.mean():.3f}")
        self.training_step_outputs.clear()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.lr)


if __name__ == "__main__":
    pl.seed_everything(1)
    trainer = pl.Trainer(max_epochs=1, accelerator="gpu", devices=1, logger=False,
                         enable_checkpointing=False, enable_progress_bar=False)
    trainer.fit(AutoEncoder(), DataLoader(Faces(128 * 260), batch_size=128))
