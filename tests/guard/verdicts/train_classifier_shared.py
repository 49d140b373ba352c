"""Train ResNet-50 while the nightly export job of the other team runs on the same card."""
import atexit
import subprocess
import sys

import torch
from torch import nn
from torchvision.models import resnet50

EXPORT_JOB = """
import time, torch
table = torch.zeros(4 * 2**28, device="cuda")
torch.cuda.synchronize()
print("export job ready", flush=True)
time.sleep(60)
"""


def start_export():
    job = subprocess.Popen([sys.executable, "-c", EXPORT_JOB], stdout=subprocess.PIPE, text=True)  # HERE
    atexit.register(job.kill)
    print(job.stdout.readline().strip(), flush=True)
    return job


def main():
    torch.manual_seed(11)
    start_export()
    device = torch.device("cuda")
    model = resnet50(num_classes=50).to(device)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    print("training starts", flush=True)
    for step in range(200):
        images = torch.randn(32, 3, 224, 224).to(device)
        labels = torch.randint(0, 50, (32,)).to(device)
        loss = criterion(model(images), labels)  # HERE
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
