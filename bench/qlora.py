"""QLoRA as bitsandbytes and peft have it, with kernels of our own that take the same buffers.

Weights of 4 bits (NF4) with a scale for each 64, which are quantized as well (nested); adapters in float32 beside them;
states of the optimizer in 8 bits with a scale for each 256. The layers that stay are float32, as
prepare_model_for_kbit_training leaves them. A program for check_fits.py and `headroom predict`.
"""

import torch
import triton
import triton.language as tl
from torch import nn
from torch.nn import functional as F
from transformers import AutoModelForCausalLM, LlamaConfig

WEIGHTS, SCALES = 64, 256  # that share a scale
NF4 = [-1.0, -0.6962, -0.5251, -0.3949, -0.2844, -0.1848, -0.0911, 0.0]
NF4 += [0.0796, 0.1609, 0.2461, 0.3379, 0.4407, 0.5626, 0.7230, 1.0]


@triton.jit
def quantize_4bit(weight, scale, middle, packed, count, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    size = tl.load(scale + place // 32, inside, 1.0)
    first = tl.load(weight + 2 * place, inside, 0.0).to(tl.float32) / size
    second = tl.load(weight + 2 * place + 1, inside, 0.0).to(tl.float32) / size
    pair = tl.zeros([BLOCK], tl.int32)
    for index in range(15):
        bound = tl.load(middle + index)
        pair += 16 * (first > bound).to(tl.int32) + (second > bound).to(tl.int32)
    tl.store(packed + place, pair.to(tl.uint8), inside)


@triton.jit
def dequantize_4bit(packed, scale, code, weight, count, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    pair = tl.load(packed + place, inside, 0).to(tl.int32)
    size = tl.load(scale + place // 32, inside, 0.0)
    kind = weight.dtype.element_ty
    tl.store(weight + 2 * place, (tl.load(code + (pair >> 4)) * size).to(kind), inside)
    tl.store(weight + 2 * place + 1, (tl.load(code + (pair & 15)) * size).to(kind), inside)


@triton.jit
def dequantize_8bit(quantized, scale, code, out, count, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    value = tl.load(code + tl.load(quantized + place, inside, 0).to(tl.int32))
    tl.store(out + place, value * tl.load(scale + tl.program_id(0)), inside)


@triton.jit
def quantize_8bit(value, quantized, scale, count, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    part = tl.load(value + place, inside, 0.0)
    size = tl.max(tl.abs(part), 0)
    tl.store(scale + tl.program_id(0), size)
    tl.store(quantized + place, (part / tl.maximum(size, 1e-20) * 127 + 128).to(tl.uint8), inside)


@triton.jit
def update_8bit(weight, gradient, first, first_scale, second, second_scale, count, rate, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    change = tl.load(gradient + place, inside, 0.0)
    size = tl.load(first_scale + tl.program_id(0))
    mean = (tl.load(first + place, inside, 128).to(tl.float32) - 128) / 127 * size
    mean = 0.9 * mean + 0.1 * change
    square = tl.load(second + place, inside, 0).to(tl.float32) / 255 * tl.load(second_scale + tl.program_id(0))
    square = 0.999 * square + 0.001 * change * change
    before = tl.load(weight + place, inside, 0.0)
    tl.store(weight + place, before - rate * mean / (tl.sqrt(square) + 1e-8), inside)
    size = tl.max(tl.abs(mean), 0)
    tl.store(first_scale + tl.program_id(0), size)
    tl.store(first + place, (mean / tl.maximum(size, 1e-20) * 127 + 128).to(tl.uint8), inside)
    size = tl.max(square, 0)
    tl.store(second_scale + tl.program_id(0), size)
    tl.store(second + place, (square / tl.maximum(size, 1e-20) * 255).to(tl.uint8), inside)


class Weight4bit:
    """A quantized weight on the GPU."""

    def __init__(self, weight, nested):
        weight = weight.to("cuda")
        self.shape, self.dtype = weight.shape, weight.dtype
        self.code = torch.tensor(NF4, device="cuda")
        scale = weight.view(-1, WEIGHTS).abs().amax(1).float()
        count = weight.numel() // 2
        self.packed = torch.empty(count, 1, dtype=torch.uint8, device="cuda")
        middle = (self.code[1:] + self.code[:-1]) / 2
        quantize_4bit[(triton.cdiv(count, 1024),)](weight, scale, middle, self.packed, count, BLOCK=1024)
        self.scale, self.nested = scale, nested
        if nested:
            self.offset = scale.mean()
            scale -= self.offset
            self.scale = torch.empty(scale.numel(), dtype=torch.uint8, device="cuda")
            self.outer = torch.empty(triton.cdiv(scale.numel(), SCALES), device="cuda")
            self.outer_code = torch.linspace(-1, 1, 256, device="cuda")
            quantize_8bit[(self.outer.numel(),)](scale, self.scale, self.outer, scale.numel(), BLOCK=SCALES)

    def dequantized(self):
        scale = self.scale
        if self.nested:
            scale = torch.empty(scale.shape, device="cuda")
            arguments = (self.scale, self.outer, self.outer_code, scale, scale.numel())
            dequantize_8bit[(self.outer.numel(),)](*arguments, BLOCK=SCALES)
            scale += self.offset
        weight, count = torch.empty(self.shape, dtype=self.dtype, device="cuda"), self.packed.numel()
        dequantize_4bit[(triton.cdiv(count, 1024),)](self.packed, scale, self.code, weight, count, BLOCK=1024)
        return weight


class Product(torch.autograd.Function):
    """bitsandbytes' MatMul4Bit: the weight is dequantized for each product, and none is kept."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.weight = weight
        return F.linear(x, weight.dequantized())

    @staticmethod
    def backward(ctx, gradient):
        return torch.matmul(gradient, ctx.weight.dequantized()), None


class Adapted(nn.Module):
    """A layer of 4 bits with an adapter, as peft computes it."""

    def __init__(self, linear, rank, nested):
        super().__init__()
        self.weight = Weight4bit(linear.weight.data, nested)
        self.dropout = nn.Dropout(0.05)
        self.a = nn.Linear(linear.in_features, rank, bias=False, device="cuda")
        self.b = nn.Linear(rank, linear.out_features, bias=False, device="cuda")
        nn.init.zeros_(self.b.weight)

    def forward(self, x):
        result = Product.apply(x.to(self.weight.dtype), self.weight).to(x.dtype).clone()
        return result + (self.b(self.a(self.dropout(x.to(self.a.weight.dtype)))) * 2).to(result.dtype)


class Adam8bit(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for weight in (weight for weight in group["params"] if weight.grad is not None):
                state, count = self.state[weight], weight.numel()
                blocks = triton.cdiv(count, SCALES)
                if not state:
                    for name in ("first", "second"):
                        state[name] = torch.zeros_like(weight, dtype=torch.uint8)
                        state[f"{name}_scale"] = torch.zeros(blocks, device=weight.device)
                update_8bit[(blocks,)](weight, weight.grad, *state.values(), count, group["lr"], BLOCK=SCALES)


def build(batch, length=512, nested=True, layers=16, width=2048, rank=16):
    torch.manual_seed(0)
    sizes = dict(hidden_size=width, intermediate_size=4 * width, num_hidden_layers=layers)
    config = LlamaConfig(vocab_size=32000, num_attention_heads=16, num_key_value_heads=8, use_cache=False, **sizes)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).requires_grad_(False)
    for module in list(model.model.layers.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):
                setattr(module, name, Adapted(child, rank, nested))
    model = model.float().to("cuda").train()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.enable_input_require_grads()
    optimizer = Adam8bit([weight for weight in model.parameters() if weight.requires_grad], 2e-4)

    def step():
        tokens = torch.randint(0, 32000, (batch, length), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def make_step(batch=4):
    return build(batch)


def make_flat(batch=4):
    """Scales that are not quantized, and long texts."""
    return build(batch, length=1024, nested=False)


def make_wide(batch=1):
    return build(batch, layers=8, width=4096, rank=64)
