"""The examples' conv net trained by JAX on one GPU: a whole epoch in one compiled lax.scan.

Data on the device, optax.adam. An epoch is timed from its shuffle to its end, after one that compiles.
Usage: jax_mnist.py DATA f32|tf32|bf16 EPOCHS BATCH...
"""
import os
import statistics
import sys
import time

os.environ.setdefault('XLA_PYTHON_CLIENT_PREALLOCATE', 'false')  # the peak is what training takes

import jax
import jax.numpy as jnp
import optax
from jax import lax

import mnist

LAYERS = {'c1': (3, 3, 1, 32), 'c2': (3, 3, 32, 64), 'c3': (3, 3, 64, 64), 'f1': (576, 64), 'f2': (64, 10)}


def parameters(key):
    glorot = jax.nn.initializers.glorot_uniform()
    keys = jax.random.split(key, len(LAYERS))
    return {name: (glorot(k, shape), jnp.zeros(shape[-1])) for k, (name, shape) in zip(keys, LAYERS.items())}


def operand(x, math):
    return x.astype(jnp.bfloat16) if math == 'bf16' else x


def conv(x, kernel, bias, math):
    y = lax.conv_general_dilated(operand(x, math), operand(kernel, math), (1, 1), 'VALID',
                                 dimension_numbers=('NHWC', 'HWIO', 'NHWC'))
    return jax.nn.relu(y.astype(jnp.float32) + bias)


def pool(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), 'VALID')


def dense(x, kernel, bias, math):
    return (operand(x, math) @ operand(kernel, math)).astype(jnp.float32) + bias


def logits(p, images, math):
    x = images[..., None].astype(jnp.float32) / 255
    x = pool(conv(x, *p['c1'], math))
    x = pool(conv(x, *p['c2'], math))
    x = conv(x, *p['c3'], math)
    x = jax.nn.relu(dense(x.reshape(x.shape[0], -1), *p['f1'], math))
    return dense(x, *p['f2'], math)


def main():
    folder, math, epochs = sys.argv[1], sys.argv[2], int(sys.argv[3])
    jax.config.update('jax_default_matmul_precision', 'highest' if math == 'f32' else 'default')
    images, labels = (jnp.asarray(a) for a in mnist.load(folder, 'train'))
    test_images, test_labels = (jnp.asarray(a) for a in mnist.load(folder, 't10k'))
    optimizer = optax.adam(1e-3)

    def loss_of(p, x, y):
        return optax.softmax_cross_entropy_with_integer_labels(logits(p, x, math), y.astype(jnp.int32)).mean()

    def step(state, rows):
        p, moments = state
        loss, gradient = jax.value_and_grad(loss_of)(p, images[rows], labels[rows])
        changes, moments = optimizer.update(gradient, moments, p)
        return (optax.apply_updates(p, changes), moments), loss

    run_epoch = jax.jit(lambda state, rows: lax.scan(step, state, rows), donate_argnums=0)
    accuracy = jax.jit(lambda p: jnp.mean(jnp.argmax(logits(p, test_images, math), 1) == test_labels))

    for batch in map(int, sys.argv[4:]):
        steps = len(images) // batch

        @jax.jit
        def shuffle(key):
            return jax.random.permutation(key, len(images))[:steps * batch].reshape(steps, batch)

        p = parameters(jax.random.key(0))
        state = (p, optimizer.init(p))
        times = []
        for epoch in range(epochs + 1):  # the first compiles
            start = time.perf_counter()
            state, _ = run_epoch(state, shuffle(jax.random.key(epoch)))
            jax.block_until_ready(state)
            times.append((time.perf_counter() - start) / steps * 1e6)
        peak = (jax.local_devices()[0].memory_stats() or {}).get('peak_bytes_in_use', 0)
        mnist.report(f'JAX {jax.__version__} scan', math, batch, statistics.median(times[1:]), peak,
                     float(accuracy(state[0])))


if __name__ == '__main__':
    main()
