import jax
import jax.numpy as jnp

WIDTH, DEPTH, STEPS = 1024, 12, 200


def init(key):
    keys = jax.random.split(key, DEPTH)
    return [(jax.random.normal(k, (WIDTH, WIDTH)) * (2 / WIDTH) ** 0.5, jnp.zeros(WIDTH)) for k in keys]


def forward(params, x):
    for w, b in params[:-1]:
        x = x + jax.nn.relu(x @ w + b) * 0.1
    w, b = params[-1]
    return x @ w + b


def loss_fn(params, x, y):
    return jnp.mean((forward(params, x) - y) ** 2)


@jax.jit
def update(params, x, y):
    loss, grads = jax.value_and_grad(loss_fn)(params, x, y)
    params = jax.tree.map(lambda p, g: p - 1e-2 * g, params, grads)
    return params, loss


def tail_average(path, last=20):
    tail = path[-last:]
    return jax.tree.map(lambda *ps: sum(ps) / len(ps), *tail)


def main():
    key = jax.random.PRNGKey(0)
    params = init(key)
    path = []
    for step in range(STEPS):
        key, kx = jax.random.split(key)
        x = jax.random.normal(kx, (256, WIDTH))
        y = jnp.roll(x, 1, axis=1)
        params, loss = update(params, x, y)
        path.append(params)  # HERE
        if step % 10 == 0:
            print(f"step {step}: loss {float(loss):.4f}", flush=True)

    averaged = tail_average(path)
    x = jax.random.normal(jax.random.PRNGKey(9), (256, WIDTH))
    y = jnp.roll(x, 1, axis=1)
    print("last iterate", float(loss_fn(params, x, y)))
    print("tail average", float(loss_fn(averaged, x, y)))


if __name__ == "__main__":
    main()
