"""Ops that PyTorch composes differently on a GPU: attention's choice of a kernel, fused dropout.

`install` registers them above autograd, where PyTorch makes these choices, for as long as the returned
library lives.
"""

import math
import os

import torch
from torch.nn import functional as F

_aten = torch.ops.aten


def can_use_fused(query, key, value, mask, is_causal):
    """Returns true if the requirements of all fused kernels hold (sdp_utils_cpp.h)."""
    if not (query.dim() == key.dim() == value.dim() == 4):
        return False
    if query.size(0) != key.size(0) or query.size(0) != value.size(0):
        return False
    if 0 in query.shape or 0 in key.shape:
        return False
    if is_causal and mask is not None:
        return False
    if mask is not None and mask.stride(-1) != 1:
        return False
    return all(tensor.stride(-1) == 1 or tensor.size(-1) == 1 for tensor in (query, key, value))


def can_use_flash(gpu, query, key, value, mask, is_causal, enable_gqa):
    if (
        gpu.capability < (8, 0)
        or mask is not None
        or query.dtype not in (torch.float16, torch.bfloat16)
    ):
        return False
    width = query.size(-1)
    if not (width == key.size(-1) == value.size(-1)) or width > 256:
        return False
    if not enable_gqa and not (query.size(1) == key.size(1) == value.size(1)):
        return False
    if is_causal and query.size(2) != key.size(2):
        return False
    return can_use_fused(query, key, value, mask, is_causal)


def can_use_cudnn(gpu, query, key, value, mask, is_causal, enable_gqa, dropout):
    """cuDNN's attention comes first on GPUs of capability 9.0 and 10.0 (check_prefer_cudnn_attention)."""
    if (
        gpu.capability not in ((9, 0), (10, 0))
        or os.environ.get("TORCH_CUDNN_SDPA_DEPRIORITIZED") == "1"
    ):
        return False
    if query.dtype not in (torch.float16, torch.bfloat16):
        return False
    width = query.size(-1)
    is_hopper = gpu.capability == (9, 0) and (torch.backends.cudnn.version() or 0) >= 91000
    limit = 256 if is_hopper else 128
    if width % 8 != 0 or value.size(-1) % 8 != 0 or max(width, value.size(-1)) > limit:
        return False
    if key.size(2) <= 1 or (mask is not None and mask.requires_grad):
        return False
    if not enable_gqa and not (query.size(1) == key.size(1) == value.size(1)):
        return False
    return can_use_fused(query, key, value, mask, is_causal)


def can_use_efficient(gpu, query, key, value, mask, is_causal, enable_gqa):
    if query.dtype not in (torch.float16, torch.bfloat16, torch.float32) or enable_gqa:
        return False
    if query.dtype == torch.bfloat16 and gpu.capability < (8, 0):
        return False
    if not (query.size(1) == key.size(1) == value.size(1)) or query.size(-1) != key.size(-1):
        return False
    alignment = 8 if query.dtype != torch.float32 else 4
    if query.size(-1) % alignment != 0 or value.size(-1) % alignment != 0:
        return False
    return can_use_fused(query, key, value, mask, is_causal)


def choose(gpu, query, key, value, mask, is_causal, enable_gqa, dropout):
    """Returns the kernel that PyTorch chooses: "cudnn", "flash", "efficient" or "math", in its order."""
    backends = torch.backends.cuda
    if (
        getattr(backends, "cudnn_sdp_enabled", lambda: False)()
        and _has_cudnn_first()
        and can_use_cudnn(gpu, query, key, value, mask, is_causal, enable_gqa, dropout)
    ):
        return "cudnn"
    if backends.flash_sdp_enabled() and can_use_flash(
        gpu, query, key, value, mask, is_causal, enable_gqa
    ):
        return "flash"
    if backends.mem_efficient_sdp_enabled() and can_use_efficient(
        gpu, query, key, value, mask, is_causal, enable_gqa
    ):
        return "efficient"
    return "math"


def _has_cudnn_first():
    major, minor = (int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    return (major, minor) >= (2, 9)


def _pad_mask(mask, query, key):
    """The mask as the efficient kernel reads it: rows aligned to 16 elements, expanded to all heads."""
    length = mask.size(-1)
    if length % 16 != 0:
        mask = F.pad(mask, (0, 16 - length % 16))[..., :length]
    return mask.expand(query.size(0), query.size(1), query.size(2), key.size(2))


def plain(query, key, value, mask, dropout_p, is_causal, scale, enable_gqa):
    """_scaled_dot_product_attention_math, which adds the mask in place, but not to fake tensors."""
    dtype = query.dtype
    reduces_low = getattr(
        torch.backends.cuda, "fp16_bf16_reduction_math_sdp_allowed", lambda: False
    )()
    if dtype in (torch.float16, torch.bfloat16) and not reduces_low:
        query, key, value = query.float(), key.float(), value.float()
    factor = math.sqrt(abs(scale) if scale is not None else 1 / math.sqrt(query.size(-1)))
    query = query * (-factor if scale is not None and scale < 0 else factor)
    if is_causal:
        shape = (query.size(-2), key.size(-2))
        mask = torch.ones(shape, dtype=torch.bool, device=query.device).tril()
        mask = _as_numbers(mask, query)
    if enable_gqa:
        key = key.repeat_interleave(query.size(-3) // key.size(-3), -3)
        value = value.repeat_interleave(query.size(-3) // value.size(-3), -3)
    scores = torch.matmul(query, key.transpose(-2, -1) * factor)
    if mask is not None:
        scores.add_(mask)
    scores = (_aten._safe_softmax if hasattr(_aten, "_safe_softmax") else torch.softmax)(scores, -1)  # from 2.5 on
    if dropout_p > 0:
        scores = torch.dropout(scores, dropout_p, True)
    return torch.matmul(scores, value).to(dtype)


def _as_numbers(mask, query):
    """A mask of booleans as numbers to add."""
    return torch.where(
        mask,
        torch.zeros((), dtype=query.dtype, device=query.device),
        torch.full((), -math.inf, dtype=query.dtype, device=query.device),
    )


def make_attention(tracer):
    gpu = tracer.gpu

    def attention(
        query,
        key,
        value,
        attn_mask=None,
        dropout_p=0.0,
        is_causal=False,
        *,
        scale=None,
        enable_gqa=False,
    ):
        mask = attn_mask
        chosen = choose(gpu, query, key, value, mask, is_causal, enable_gqa, dropout_p)
        needs_gradient = torch.is_grad_enabled() and any(
            t.requires_grad for t in (query, key, value)
        )
        if mask is not None and mask.dtype == torch.bool:
            mask = _as_numbers(mask, query)
        if chosen == "cudnn":
            return _aten._scaled_dot_product_cudnn_attention(
                query, key, value, mask, needs_gradient, dropout_p, is_causal, False, scale=scale
            )[0]
        if chosen == "flash":
            width = query.size(-1)
            factor = scale if scale is not None else 1 / math.sqrt(width)
            if width % 8 != 0:
                query, key, value = (F.pad(t, (0, 8 - width % 8)) for t in (query, key, value))
            out = _aten._scaled_dot_product_flash_attention(
                query, key, value, dropout_p, is_causal, False, scale=factor
            )[0]
            return out[..., :width] if width % 8 != 0 else out
        if chosen == "efficient":
            if mask is not None:
                mask = _pad_mask(mask, query, key)
            return _aten._scaled_dot_product_efficient_attention(
                query, key, value, mask, needs_gradient, dropout_p, is_causal, scale=scale
            )[0]
        return plain(query, key, value, mask, dropout_p, is_causal, scale, enable_gqa)

    return attention


def dropout(input, p, train):
    """The fused kernel, which keeps a mask of one byte for each element."""
    if not train or p == 0 or input.numel() == 0:
        return input
    if p == 1:
        return input * torch.zeros((), dtype=input.dtype, device=input.device)
    return torch.native_dropout(input, p, train)[0]


def _make_softmax(tracer, fused):
    def softmax(input, dim, dtype=None):
        """From float16 to float32 in one kernel, without a copy."""
        if dtype is torch.float32 and input.dtype is torch.float16 and tracer.is_on_gpu(input):
            return fused(input, dim, True)
        return fused(input if dtype is None else input.to(dtype), dim, False)

    return softmax


def install(tracer, library):
    composites = {
        _aten.scaled_dot_product_attention.default: make_attention(tracer),
        _aten.dropout.default: dropout,
        _aten.softmax.int: _make_softmax(tracer, _aten._softmax),
        _aten.log_softmax.int: _make_softmax(tracer, _aten._log_softmax),
    }
    for op, function in composites.items():
        for key in ("AutogradCPU", "CPU"):
            library.impl(op.name().removeprefix("aten::"), function, key)
    tracer.composites.update(composites)
