"""Go from self-play: an evaluator process serves positions, the learner trains in this one."""
import argparse

import torch
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn

BOARD = 19


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)

    def forward(self, x):
        h = F.relu(self.bn1(self.conv1(x)))
        return F.relu(x + self.bn2(self.conv2(h)))


class GoNet(nn.Module):
    def __init__(self, width=128, blocks=6, planes=8):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(planes, width, 3, padding=1), *[Block(width) for _ in range(blocks)])
        self.policy = nn.Conv2d(width, 1, 1)
        self.value = nn.Linear(width, 1)

    def forward(self, x):
        h = self.body(x)
        return self.policy(h).flatten(1), torch.tanh(self.value(h.mean((2, 3)))).squeeze(1)


def pick_device():
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def evaluator(requests, answers, ready, positions):
    """Answers with policy and value; what it has seen is kept in a hash table."""
    device = pick_device()
    torch.manual_seed(1)
    net = GoNet().to(device).eval()
    table = torch.zeros(positions, BOARD * BOARD + 1, device=device)  # HERE
    filled = torch.zeros(positions, dtype=torch.bool, device=device)
    ready.set()
    while (planes := requests.get()) is not None:
        planes = planes.to(device)
        slot = (planes.flatten(1).sum(1) * 7919).long() % positions
        with torch.inference_mode():
            policy, value = net(planes)
            fresh = torch.cat([policy, value[:, None]], 1)
            known = filled[slot]
            result = torch.where(known[:, None], table[slot], fresh)
            table[slot], filled[slot] = result, True
        answers.put(result.cpu())


def play(count, gen, requests, answers):
    """Random positions stand for games; the evaluator says how they should be played."""
    planes = (torch.rand(count, 8, BOARD, BOARD, generator=gen) < 0.2).float()
    requests.put(planes)
    result = answers.get()
    return planes, result[:, :-1].softmax(1), result[:, -1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--positions", type=int, default=1_600_000)
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    context = mp.get_context("spawn")
    requests, answers, ready = context.Queue(), context.Queue(), context.Event()
    worker = context.Process(target=evaluator, args=(requests, answers, ready, args.positions), daemon=True)
    worker.start()  # HERE
    if not ready.wait(60):
        raise SystemExit("the evaluator did not start")

    device = pick_device()
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(0)
    net = GoNet().to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
    for step in range(args.steps):
        planes, policy, value = play(args.batch, gen, requests, answers)
        logits, predicted = net(planes.to(device))
        loss = F.cross_entropy(logits, policy.to(device)) + F.mse_loss(predicted, value.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    requests.put(None)
    worker.join()


if __name__ == "__main__":
    main()
