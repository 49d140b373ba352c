"""The nets of models.py in plain JAX: a jitted training step with SGD, channels last, attention by cuDNN where it
takes the net's. measure(net, batch, words, steps, precision) returns ms a step and MiB at the peak."""
import functools
import statistics
import time

import jax
import jax.numpy as jnp
from jax import lax

MIB = 2**20


def keys():
    key = jax.random.key(0)
    while True:
        key, one = jax.random.split(key)
        yield one


def matrix(key, *shape):
    fan_in = 1
    for extent in shape[:-1]:
        fan_in *= extent
    return jax.random.normal(key, shape) * fan_in**-0.5


def vector_norm(x, p):
    """Layer norm, computed in f32."""
    wide = x.astype(jnp.float32)
    mean = wide.mean(-1, keepdims=True)
    variance = jnp.square(wide - mean).mean(-1, keepdims=True)
    return ((wide - mean) * lax.rsqrt(variance + 1e-5) * p["gamma"] + p["beta"]).astype(x.dtype)


def norm_parameters(width):
    return {"gamma": jnp.ones(width), "beta": jnp.zeros(width)}


def dense(x, p):
    return x @ p["w"].astype(x.dtype) + p["b"].astype(x.dtype)


def dense_parameters(key, before, after):
    return {"w": matrix(next(key), before, after), "b": jnp.zeros(after)}


# ---- transformers


def block_parameters(key, width):
    return {"first": norm_parameters(width), "second": norm_parameters(width),
            "qkv": dense_parameters(key, width, 3 * width), "out": dense_parameters(key, width, width),
            "up": dense_parameters(key, width, 4 * width), "down": dense_parameters(key, 4 * width, width)}


def attend(x, p, heads, causal):
    batch, length, width = x.shape
    q, k, v = jnp.split(dense(x, p["qkv"]).reshape(batch, length, 3 * heads, width // heads), 3, axis=2)
    # cuDNN's attention supports only 16 bits and even lengths.
    how = "cudnn" if x.dtype != jnp.float32 and length % 2 == 0 else "xla"
    y = jax.nn.dot_product_attention(q, k, v, is_causal=causal, implementation=how)
    return dense(y.reshape(batch, length, width), p["out"])


def feed_forward(x, p, approximate):
    return dense(jax.nn.gelu(dense(x, p["up"]), approximate=approximate), p["down"])


def norm_first(x, p, heads, causal, approximate):
    x = x + attend(vector_norm(x, p["first"]), p, heads, causal)
    return x + feed_forward(vector_norm(x, p["second"]), p, approximate)


def norm_last(x, p, heads):
    x = vector_norm(x + attend(x, p, heads, False), p["first"])
    return vector_norm(x + feed_forward(x, p, False), p["second"])


def gpt2(key, words):
    width, vocabulary = 768, 50257
    p = {"words": matrix(next(key), vocabulary, width), "positions": matrix(next(key), words, width),
         "blocks": [block_parameters(key, width) for _ in range(12)], "norm": norm_parameters(width)}

    def logits(p, x, dtype):
        y = (p["words"][x] + p["positions"]).astype(dtype)
        for block in p["blocks"]:
            y = norm_first(y, block, 12, True, True)
        return vector_norm(y, p["norm"]) @ p["words"].astype(dtype).T

    return p, logits, ("text", vocabulary)


def bert(key, words):
    width, vocabulary = 768, 30522
    p = {"words": matrix(next(key), vocabulary, width), "positions": matrix(next(key), words, width),
         "norm": norm_parameters(width), "blocks": [block_parameters(key, width) for _ in range(12)],
         "head": dense_parameters(key, width, width), "head_norm": norm_parameters(width),
         "bias": jnp.zeros(vocabulary)}

    def logits(p, x, dtype):
        y = vector_norm((p["words"][x] + p["positions"]).astype(dtype), p["norm"])
        for block in p["blocks"]:
            y = norm_last(y, block, 12)
        y = vector_norm(jax.nn.gelu(dense(y, p["head"]), approximate=False), p["head_norm"])
        return y @ p["words"].astype(dtype).T + p["bias"].astype(dtype)

    return p, logits, ("text", vocabulary)


def vit_small(key, _):
    width, patch, extent = 384, 16, 224
    count = (extent // patch) ** 2
    p = {"patches": dense_parameters(key, patch * patch * 3, width), "class": jnp.zeros((1, 1, width)),
         "positions": matrix(next(key), count + 1, width), "norm": norm_parameters(width),
         "blocks": [block_parameters(key, width) for _ in range(12)], "head": dense_parameters(key, width, 1000)}

    def logits(p, x, dtype):
        batch, side = x.shape[0], extent // patch
        y = x.astype(dtype).reshape(batch, side, patch, side, patch, 3).transpose(0, 1, 3, 2, 4, 5)
        y = dense(y.reshape(batch, count, -1), p["patches"])
        first = jnp.broadcast_to(p["class"].astype(dtype), (batch, 1, width))
        y = jnp.concatenate([first, y], 1) + p["positions"].astype(dtype)
        for block in p["blocks"]:
            y = norm_first(y, block, 6, False, False)
        return dense(vector_norm(y[:, 0], p["norm"]), p["head"])

    return p, logits, ("image", 1000)


# ---- ResNet-50


def conv(x, w, stride=1):
    return lax.conv_general_dilated(x, w.astype(x.dtype), (stride, stride), "SAME",
                                    dimension_numbers=("NHWC", "HWIO", "NHWC"))


def batch_norm(x, p):
    """With the statistics of the batch; the moving averages are left out."""
    wide = x.astype(jnp.float32)
    mean = wide.mean((0, 1, 2))
    variance = jnp.square(wide).mean((0, 1, 2)) - jnp.square(mean)
    scale = p["gamma"] * lax.rsqrt(variance + 1e-5)
    return (wide * scale + (p["beta"] - mean * scale)).astype(x.dtype)


def conv_parameters(key, kernel, before, after):
    return {"w": matrix(next(key), kernel, kernel, before, after), **norm_parameters(after)}


def resnet50(key, _):
    p = {"stem": conv_parameters(key, 7, 3, 64), "blocks": [], "head": dense_parameters(key, 2048, 1000)}
    strides, before = [], 64
    for width, count in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for i in range(count):
            block = {"a": conv_parameters(key, 1, before, width), "b": conv_parameters(key, 3, width, width),
                     "c": conv_parameters(key, 1, width, 4 * width)}
            if i == 0:
                block["skip"] = conv_parameters(key, 1, before, 4 * width)
            p["blocks"].append(block)
            strides.append(2 if i == 0 and width > 64 else 1)
            before = 4 * width

    def logits(p, x, dtype):
        def unit(x, q, stride=1):
            return batch_norm(conv(x, q["w"], stride), q)

        y = jax.nn.relu(unit(x.astype(dtype), p["stem"], 2))
        y = lax.reduce_window(y, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
        for block, stride in zip(p["blocks"], strides):
            z = jax.nn.relu(unit(y, block["a"]))
            z = unit(jax.nn.relu(unit(z, block["b"], stride)), block["c"])
            y = jax.nn.relu(z + (unit(y, block["skip"], stride) if "skip" in block else y))
        return dense(y.astype(jnp.float32).mean((1, 2)).astype(dtype), p["head"])

    return p, logits, ("image", 1000)


NETS = {"resnet50": resnet50, "gpt2": gpt2, "bert": bert, "vit_small": vit_small}


def measure(name, batch, words, steps, precision):
    jax.config.update("jax_default_matmul_precision", "tensorfloat32")
    p, logits, (kind, classes) = NETS[name](keys(), words)
    dtype = jnp.bfloat16 if precision == "bf16" else jnp.float32
    key = jax.random.key(1)
    if kind == "text":
        x = y = jax.random.randint(key, (batch, words), 0, classes)
    else:
        x, y = jax.random.normal(key, (batch, 224, 224, 3)), jax.random.randint(key, (batch,), 0, classes)

    def loss(p, x, y):
        z = logits(p, x, dtype).astype(jnp.float32)
        return (jax.nn.logsumexp(z, -1) - jnp.take_along_axis(z, y[..., None], -1)[..., 0]).mean()

    @functools.partial(jax.jit, donate_argnums=0)
    def step(p, x, y):
        value, gradients = jax.value_and_grad(loss)(p, x, y)
        return jax.tree.map(lambda w, g: w - 1e-3 * g, p, gradients), value

    for _ in range(5):
        p, value = step(p, x, y)
    jax.block_until_ready(value)
    group, times = max(1, steps // 10), []
    for _ in range(min(steps, 10)):
        start = time.perf_counter()
        for _ in range(group):
            p, value = step(p, x, y)
        jax.block_until_ready(value)
        times.append(1e3 * (time.perf_counter() - start) / group)
    statistics_of_device = jax.local_devices()[0].memory_stats() or {}
    return {"ms": statistics.median(times), "mib": statistics_of_device.get("peak_bytes_in_use", 0) / MIB}
