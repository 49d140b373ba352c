"""Linear probe on a frozen ResNet-50."""
import torch
import torch.nn.functional as F
import torchvision


def get_model(num_classes):
    model = torchvision.models.resnet50(weights=None)
    for p in model.parameters():
        p.require_grad = False  # HERE
    model.fc = torch.nn.Linear(model.fc.in_features, num_classes)
    return model


def batches(n, bs, device):
    for _ in range(n):
        yield (torch.rand(bs, 3, 224, 224, device=device),
               torch.randint(0, 37, (bs,), device=device))


def main():
    device = torch.device("cuda")
    model = get_model(37).to(device)
    model.eval()  # keep the BN statistics of the backbone
    optimizer = torch.optim.SGD(model.fc.parameters(), lr=0.1, momentum=0.9)
    for step, (x, y) in enumerate(batches(300, 64, device)):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print("step %d loss %.3f" % (step, loss.item()))


if __name__ == "__main__":
    main()
