"""MAML, 5-way 5-shot, four conv blocks."""
import torch
import torch.nn.functional as F

torch.manual_seed(3)
dev = "cuda"
WAYS, SHOTS, QUERIES, SIDE, CH = 5, 5, 15, 84, 64
INNER_STEPS, INNER_LR, META_STEPS = 20, 0.01, 50


def init_params():
    params, cin = [], 3
    for _ in range(4):
        w = torch.empty(CH, cin, 3, 3, device=dev)
        torch.nn.init.kaiming_normal_(w)
        params += [w, torch.ones(CH, device=dev), torch.zeros(CH, device=dev)]
        cin = CH
    head = torch.empty(WAYS, CH * (SIDE // 16) ** 2, device=dev)
    torch.nn.init.xavier_uniform_(head)
    params += [head, torch.zeros(WAYS, device=dev)]
    return [p.requires_grad_() for p in params]


def forward(params, x):
    for i in range(4):
        w, g, b = params[3 * i : 3 * i + 3]
        x = F.conv2d(x, w, padding=1)
        x = F.batch_norm(x, None, None, g, b, training=True)
        x = F.max_pool2d(F.relu(x), 2)
    return F.linear(x.flatten(1), params[-2], params[-1])


def sample_task():
    protos = torch.randn(WAYS, 3, SIDE, SIDE, device=dev)
    def draw(n):
        y = torch.arange(WAYS, device=dev).repeat_interleave(n)
        return protos[y] + 0.5 * torch.randn(len(y), 3, SIDE, SIDE, device=dev), y
    return draw(SHOTS), draw(QUERIES)


meta_params = init_params()
meta_opt = torch.optim.Adam(meta_params, lr=1e-3)
for meta_step in range(META_STEPS):
    (sx, sy), (qx, qy) = sample_task()
    fast = meta_params
    for k in range(INNER_STEPS):
        inner_loss = F.cross_entropy(forward(fast, sx), sy)
        grads = torch.autograd.grad(inner_loss, fast, create_graph=True)  # HERE
        fast = [p - INNER_LR * g for p, g in zip(fast, grads)]
        print(f"task {meta_step} inner {k} loss {inner_loss.item():.4f}", flush=True)
    query_loss = F.cross_entropy(forward(fast, qx), qy)
    meta_opt.zero_grad()
    query_loss.backward()
    meta_opt.step()
    print(f"task {meta_step} query loss {query_loss.item():.4f}")
