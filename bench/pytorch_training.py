"""Training in PyTorch under Headroom's strategies and under PyTorch's own allocator, in one run; see pytorch.sh.

Three programs whose sizes change from step to step: a language model (GPT-2's layers) on texts of random lengths, a
graph network (GraphSAGE, mean of the neighbors) on random subgraphs, and a detector (torchvision's Faster R-CNN) on
images of random sizes. Each variant runs in a fresh process, with the
same seed and the same steps.
"""
import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import time

CHUNK = 25  # steps between two looks at the clock: the host may run ahead within one
OWN = 'pytorch'  # variants of that name and of "pytorch,SETTINGS" are PyTorch's own allocator


def language_model(torch, device, small=False):
    """Six layers of GPT-2 (124 M), batches of 2 to 8 texts of 64 to 1000 words, AdamW. Returns the step."""
    from torch import nn
    import torch.nn.functional as F
    words, width, heads, layers = (512, 64, 2, 1) if small else (50257, 768, 12, 6)

    def gelu(x):  # as GPT-2 has it, in single steps
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3))))

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            batch, length, _ = x.shape
            q, k, v = (part.view(batch, length, heads, -1).transpose(1, 2)
                       for part in self.qkv(self.norm_1(x)).split(width, 2))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + F.dropout(self.out(y.transpose(1, 2).reshape(batch, length, width)), 0.1)
            return x + F.dropout(self.down(gelu(self.up(self.norm_2(x)))), 0.1)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(words, width), nn.Embedding(1024, width)
            self.layers = nn.ModuleList(Layer() for _ in range(layers))
            self.norm = nn.LayerNorm(width)

        def forward(self, x):
            y = F.dropout(self.words(x) + self.places(torch.arange(x.shape[1], device=x.device)), 0.1)
            for layer in self.layers:
                y = layer(y)
            return F.linear(self.norm(y), self.words.weight)

    model = Model().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step(numbers):
        batch, length = numbers.choice((2, 4, 8)), numbers.randrange(64, 1000)
        text = torch.randint(0, words, (batch, length), device=device)
        optimizer.zero_grad()
        logits = model(text)[:, :-1].reshape(-1, words)
        loss = F.cross_entropy(logits, text[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
        return loss
    return step


def graph_network(torch, device, small=False):
    """Three layers of GraphSAGE on 25,000 to 120,000 nodes with 4 to 11 edges each, Adam. Returns the step."""
    from torch import nn
    import torch.nn.functional as F
    features, width, classes = (16, 32, 4) if small else (256, 512, 47)

    class Sage(nn.Module):
        def __init__(self, inputs, outputs):
            super().__init__()
            self.own, self.others = nn.Linear(inputs, outputs), nn.Linear(inputs, outputs, bias=False)

        def forward(self, x, source, target):
            total = torch.zeros_like(x).index_add(0, target, x[source])
            count = torch.zeros(x.shape[0], device=x.device).index_add(
                0, target, torch.ones(target.shape[0], device=x.device))
            return self.own(x) + self.others(total / count.clamp(min=1)[:, None])

    model = nn.ModuleList([Sage(features, width), Sage(width, width), Sage(width, classes)]).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step(numbers):
        nodes = numbers.randrange(200, 400) if small else numbers.randrange(25_000, 120_000)
        degree = numbers.randrange(4, 12)
        x = torch.randn(nodes, features, device=device)
        source, target = torch.randint(0, nodes, (2, nodes * degree), device=device)
        labels = torch.randint(0, classes, (nodes,), device=device)
        optimizer.zero_grad()
        for i, layer in enumerate(model):
            x = layer(x, source, target)
            if i + 1 < len(model):
                x = F.relu(x)
        loss = F.cross_entropy(x, labels)
        loss.backward()
        optimizer.step()
        return loss
    return step


def detector(torch, device, small=False):
    """Faster R-CNN with a ResNet-50 (torchvision), 1 to 4 images of 240 to 640 pixels a side with 1 to 15 boxes, SGD.
    Returns the step."""
    from torchvision.models.detection import fasterrcnn_resnet50_fpn
    model = fasterrcnn_resnet50_fpn(weights=None, weights_backbone=None, num_classes=91, min_size=64 if small else 480,
                                    max_size=96 if small else 800).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)

    def step(numbers):
        images, targets = [], []
        for _ in range(numbers.randrange(1, 5)):
            height, width = numbers.randrange(240, 640), numbers.randrange(240, 640)
            images.append(torch.rand(3, height, width, device=device))
            corners = [(numbers.randrange(width - 40), numbers.randrange(height - 40))
                       for _ in range(numbers.randrange(1, 16))]
            boxes = [(x, y, x + numbers.randrange(20, 40), y + numbers.randrange(20, 40)) for x, y in corners]
            targets.append({'boxes': torch.tensor(boxes, dtype=torch.float32, device=device),
                            'labels': torch.randint(1, 91, (len(boxes),), device=device)})
        optimizer.zero_grad()
        loss = sum(model(images, targets).values())
        loss.backward()
        optimizer.step()
        return loss.detach()
    return step


WORKLOADS = {'transformer': language_model, 'graph': graph_network, 'detection': detector}


def use_variant(torch, variant):
    """Installs the variant as PyTorch's allocator; returns a function for reserved, peak and requested bytes."""
    if variant.split(',')[0] == OWN:
        def counts():
            stats = torch.cuda.memory_stats()
            return {'reserved': stats['reserved_bytes.all.current'], 'reserved_peak': stats['reserved_bytes.all.peak'],
                    'requested_peak': stats['requested_bytes.all.peak'],
                    'driver_calls': stats['num_device_alloc'] + stats['num_device_free']}
        return counts
    import headroom.torch as headroom_torch
    headroom_torch.use(variant)

    def counts_of_ours():
        stats = headroom_torch.statistics() or {}
        return {'reserved': stats.get('reserved_bytes', 0), 'reserved_peak': stats.get('reserved_peak_bytes', 0),
                'requested_peak': stats.get('requested_peak_bytes', 0), 'driver_calls': stats.get('driver_calls', 0)}
    return counts_of_ours


def check_hooks(torch, counts):
    """Tests record_stream and empty_cache with 256 MiB; returns what happened."""
    count, side = 64 << 20, torch.cuda.Stream()
    kept = torch.zeros(count, device='cuda')
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        kept.sum()  # what the stream needs of its own may take a wait
        torch.cuda._sleep(400_000_000)  # about a quarter of a second
        total = kept.sum()
    kept.record_stream(side)
    address = kept.data_ptr()
    del kept
    other = torch.full((count,), 1., device='cuda')  # must not get the memory that `side` still reads
    busy = not side.query()
    early = busy and other.data_ptr() == address
    torch.cuda.synchronize()
    again = torch.empty(count, device='cuda').data_ptr() == address  # now it may
    del other
    untouched = total.item() == 0
    before = counts()['reserved']
    used = used_bytes(torch)
    torch.cuda.empty_cache()
    kept_until_done = ('NOT KEPT' if early or not untouched else 'not seen' if not busy else
                       'kept, given again' if again else 'kept')
    return {'record_stream': kept_until_done,
            'empty_cache': before - counts()['reserved'], 'empty_cache_driver': used - used_bytes(torch)}


def used_bytes(torch):
    free, total = torch.cuda.mem_get_info()
    return total - free


def train(workload, variant, steps, seed):
    import torch
    torch.backends.cuda.matmul.allow_tf32 = True
    counts = use_variant(torch, variant)
    make = WORKLOADS[workload]
    torch.manual_seed(seed)
    # The memory that libraries and kernels take at first use belongs to no allocator.
    step = make(torch, 'cuda', small=True)
    for _ in range(3):
        step(random.Random(seed))
    del step
    torch.cuda.synchronize()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    before = used_bytes(torch) - counts()['reserved']

    torch.manual_seed(seed)
    numbers = random.Random(seed)
    step = make(torch, 'cuda')
    seconds, peak, loss = [], 0, None
    for _ in range(steps // CHUNK):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(CHUNK):
            loss = step(numbers)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
        peak = max(peak, used_bytes(torch) - before)
    now = counts()
    result = {'workload': workload, 'variant': variant, 'loss': loss.item(), 'seconds': seconds, 'driver_peak': peak,
              'device': torch.cuda.get_device_name(), 'torch': torch.__version__, **now}
    del step, loss
    result.update(check_hooks(torch, counts))
    return result


def run_variant(arguments, workload, variant):
    environment = dict(os.environ)
    settings = variant.partition(',')[2]
    if variant.split(',')[0] == OWN and settings:
        environment['PYTORCH_CUDA_ALLOC_CONF'] = environment['PYTORCH_ALLOC_CONF'] = settings
    command = [sys.executable, os.path.abspath(__file__), '--one', workload, variant, '--steps', str(arguments.steps),
               '--seed', str(arguments.seed)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        print(f'{workload} {variant}: failed\n{done.stderr[-2000:]}', flush=True)
        return None
    return json.loads(done.stdout.splitlines()[-1])


def print_table(workload, runs, reference):
    """`runs`: variant -> results of its rounds. Speeds are compared chunk by chunk, since their sizes differ."""
    mib = 1 << 20
    print(f'\n{workload:<34}{"need":>9}{"driver":>9}{"reserved":>9}{"x need":>8}{"x need":>8}{"steps/s":>9}{"ratio":>8}'
          f'{"all":>8}{"calls":>8}  hooks')
    print(f'{"":<34}{"MiB":>9}{"MiB":>9}{"MiB":>9}{"driver":>8}{"own":>8}{"median":>9}{"median":>8}{"warm":>8}')
    # The best round of each chunk. The first chunk fills the allocator and is left out.
    best = {variant: [min(times) for times in zip(*(run['seconds'] for run in rounds))][1:]
            for variant, rounds in runs.items()}
    for variant, rounds in runs.items():
        run = rounds[0]
        need = run['requested_peak']
        ratios = [theirs / ours for theirs, ours in zip(best[reference], best[variant])]
        speed = statistics.median(CHUNK / chunk for chunk in best[variant])
        hooks = f'record_stream {run["record_stream"]}, empty_cache {run["empty_cache_driver"] / mib:.0f} MiB'
        print(f'{variant:<34}{need / mib:9.0f}{run["driver_peak"] / mib:9.0f}{run["reserved_peak"] / mib:9.0f}'
              f'{run["driver_peak"] / need:8.3f}{run["reserved_peak"] / need:8.3f}{speed:9.2f}'
              f'{statistics.median(ratios):8.3f}{sum(best[reference]) / sum(best[variant]):8.3f}'
              f'{run["driver_calls"]:8}  {hooks}')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('variants', nargs='*', default=[OWN, f'{OWN},expandable_segments:True', 'mapped'],
                        help='"pytorch", "pytorch,SETTINGS of PYTORCH_CUDA_ALLOC_CONF", or one of our strategies')
    parser.add_argument('--workloads', nargs='+', choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument('--steps', type=int, default=500)
    parser.add_argument('--rounds', type=int, default=1, help='how often all variants are run, in turns')
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--json', metavar='FILE', help='write all results there, too')
    parser.add_argument('--one', nargs=2, metavar=('WORKLOAD', 'VARIANT'), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.steps < 2 * CHUNK:
        parser.error(f'--steps: at least {2 * CHUNK}')
    if arguments.one:
        print(json.dumps(train(*arguments.one, arguments.steps, arguments.seed)))
        return 0
    results, failed = [], False
    for workload in arguments.workloads:
        runs = {}
        for _ in range(arguments.rounds):
            for variant in arguments.variants:
                result = run_variant(arguments, workload, variant)
                failed = failed or result is None
                if result is not None:
                    runs.setdefault(variant, []).append(result)
                    results.append(result)
        if runs:
            print_table(workload, runs, arguments.variants[0] if arguments.variants[0] in runs else next(iter(runs)))
    if results:
        print(f'\n{results[0]["device"]}, PyTorch {results[0]["torch"]}, {arguments.steps} steps each, '
              f'seed {arguments.seed}')
    if arguments.json:
        with open(arguments.json, 'w', encoding='utf-8') as file:
            json.dump(results, file)
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
