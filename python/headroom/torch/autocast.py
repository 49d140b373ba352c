"""Autocast as on a GPU. Fake tensors are on the CPU for PyTorch's dispatcher, and a CPU's autocast has
other rules: `install` puts the GPU's rules in their place, with its cache of weights.

The lists are those of AT_FORALL_LOWER_PRECISION_FP, AT_FORALL_FP32, AT_FORALL_FP32_SET_OPT_DTYPE and
AT_FORALL_PROMOTE in ATen/autocast_mode.h.
"""

import functools
import weakref

import torch
from torch.utils._pytree import tree_map

from .standin.patch import patch

_LOWER = """_convolution.deprecated _convolution conv1d conv2d conv3d conv1d.padding conv2d.padding conv3d.padding
conv_tbc conv_transpose1d conv_transpose2d.input conv_transpose3d.input convolution prelu addmm addmv addr matmul
einsum mm mv linalg_vecdot linear addbmm baddbmm bmm chain_matmul linalg_multi_dot _thnn_fused_lstm_cell
_thnn_fused_gru_cell lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell _scaled_dot_product_flash_attention
scaled_dot_product_attention""".split()

_FLOAT = """acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar
pow.Tensor_Tensor pow.Scalar softplus layer_norm native_layer_norm group_norm frobenius_norm.dim nuclear_norm
nuclear_norm.dim cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d hinge_embedding_loss
kl_div l1_loss smooth_l1_loss huber_loss mse_loss margin_ranking_loss multilabel_margin_loss soft_margin_loss
triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits dist pdist cdist renorm logsumexp
upsample_nearest1d _upsample_nearest_exact1d upsample_nearest2d _upsample_nearest_exact2d upsample_nearest3d
_upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d _upsample_bilinear2d_aa upsample_trilinear3d
upsample_bicubic2d _upsample_bicubic2d_aa""".split()

_SET_DTYPE = """prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm linalg_matrix_norm
linalg_matrix_norm.str_ord sum sum.dim_IntList""".split()

# On a GPU they turn into overloads with a type; a cast before them takes the same memory.
_APPEND_DTYPE = "norm.Scalar norm.ScalarOpt_dim".split()

_PROMOTE = "addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add".split()

_LOW_TYPES = (torch.float16, torch.bfloat16)


class Autocast:
    """The weights that were cast, until the outermost autocast is left."""

    def __init__(self):
        self.cache = {}

    def clear(self):
        self.cache.clear()

    def cast(self, value, dtype):
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        if value.dtype == dtype or value.dtype == torch.float64:
            return value
        cacheable = (
            dtype in _LOW_TYPES
            and value.dtype == torch.float32
            and value.requires_grad
            and value.is_leaf
            and value._base is None
            and torch.is_autocast_cache_enabled()
        )
        if not cacheable:
            return value.to(dtype)
        found = self.cache.get(id(value))
        if found is not None and found[0]() is value:
            return found[1]
        result = value.to(dtype)
        self.cache[id(value)] = (weakref.ref(value), result)
        return result


def _low_type():
    return torch.get_autocast_dtype("cpu")


def _make(op, choose, autocast, key_set):
    def kernel(*args, **kwargs):
        with torch._C._ExcludeDispatchKeyGuard(key_set):
            args, kwargs = choose(autocast, op, args, kwargs)
            return op(*args, **kwargs)

    return kernel


def _cast_all(autocast, args, kwargs, dtype):
    """All arguments in another type, the last one first: PyTorch casts them as the arguments of one C++
    call (cached_cast in WrapFunction_), and GCC, which builds it, evaluates these from the right."""
    cast = functools.partial(tree_map, lambda value: autocast.cast(value, dtype))
    kwargs = {name: cast(value) for name, value in reversed(list(kwargs.items()))}
    return tuple(reversed([cast(value) for value in reversed(args)])), kwargs


def _lower(autocast, op, args, kwargs):
    return _cast_all(autocast, args, kwargs, _low_type())


def _float(autocast, op, args, kwargs):
    return _cast_all(autocast, args, kwargs, torch.float32)


def _set_dtype(autocast, op, args, kwargs):
    if args[0].dtype not in _LOW_TYPES:
        return args, kwargs
    position = [argument.name for argument in op._schema.arguments].index("dtype")
    if position < len(args):
        dtype = args[position] or torch.float32
        return args[:position] + (dtype,) + args[position + 1 :], kwargs
    return args, dict(kwargs, dtype=kwargs.get("dtype") or torch.float32)


def _promote(autocast, op, args, kwargs):
    types = set()
    tree_map(
        lambda v: (
            types.add(v.dtype) if isinstance(v, torch.Tensor) and v.is_floating_point() else None
        ),
        (args, kwargs),
    )
    dtype = torch.float32 if torch.float32 in types else _low_type()
    return _cast_all(autocast, args, kwargs, dtype)


def _find(name):
    packet, _, overload = name.partition(".")
    packet = getattr(torch.ops.aten, packet, None)
    return None if packet is None else getattr(packet, overload or "default", None)


def register(library, device_type, autocast):
    """Registers the GPU's rules for tensors of a type of devices. Returns the names of the ops."""
    dispatch_key = f"Autocast{device_type.upper()}"
    key_set = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, dispatch_key))
    known = set()
    for names, choose in (
        (_LOWER, _lower),
        (_FLOAT + _APPEND_DTYPE, _float),
        (_SET_DTYPE, _set_dtype),
        (_PROMOTE, _promote),
    ):
        for name in names:
            op = _find(name)
            if op is not None:
                library.impl(name, _make(op, choose, autocast, key_set), dispatch_key)
                known.add(f"aten::{name}")
    return known


def install(library, stack):
    """Registers the rules in a torch.library.Library, makes the CPU's state answer for the GPU until the stack
    is closed, and returns the cache of weights."""
    autocast = Autocast()
    _share_state(autocast, stack)
    known = register(library, "cpu", autocast)
    # Ops that only a CPU's autocast treats.
    for name in torch._C._dispatch_get_registrations_for_dispatch_key("AutocastCPU"):
        if name.startswith("aten::") and name not in known and _find(name[6:]) is not None:
            library.impl(name[6:], torch.library.fallthrough_kernel, "AutocastCPU")
    return autocast


def _for_both(original):
    def set_state(*args):
        if args[0] == "cpu":
            original("cuda", *args[1:])
        return original(*args)

    return set_state


def _share_state(autocast, stack):
    """Autocast for "cuda" switches that for "cpu", whose rules are the GPU's here."""
    amp = torch.amp.autocast_mode.autocast
    original_autocast = amp.__init__

    def autocast_init(self, device_type, dtype=None, enabled=True, cache_enabled=None):
        if device_type == "cuda":
            dtype = dtype or torch.get_autocast_dtype("cuda")
            device_type = "cpu"
        original_autocast(
            self, device_type, dtype=dtype, enabled=enabled, cache_enabled=cache_enabled
        )

    patch(stack, amp, "__init__", autocast_init)
    enabled, get_dtype = torch.is_autocast_enabled, torch.get_autocast_dtype

    def is_enabled(device_type="cuda"):
        return enabled("cpu" if device_type == "cuda" else device_type)

    def current_dtype(device_type):
        return (
            get_dtype("cpu")
            if device_type == "cuda" and enabled("cpu")
            else get_dtype(device_type)
        )

    # Compiled code is guarded by the state for "cuda", which has no effect on fake tensors.
    for name in ("set_autocast_enabled", "set_autocast_dtype"):
        patch(stack, torch, name, _for_both(getattr(torch, name)))
    patch(stack, torch, "is_autocast_enabled", is_enabled)
    patch(stack, torch, "get_autocast_dtype", current_dtype)
    patch(stack, torch, "get_autocast_gpu_dtype", lambda: current_dtype("cuda"))
    clear = torch.clear_autocast_cache

    def clear_cache():
        autocast.clear()
        clear()

    patch(stack, torch, "clear_autocast_cache", clear_cache)
