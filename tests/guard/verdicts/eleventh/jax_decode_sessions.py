"""Token-by-token decoding for a queue of chat sessions with a key/value store per session."""
from functools import partial

import jax
import jax.numpy as jnp

LAYERS, HEADS, HDIM, MAXLEN, VOCAB, BATCH = 8, 8, 64, 1024, 4096, 8
DIM = HEADS * HDIM


def init_params(key):
    ks = jax.random.split(key, 2 + LAYERS)

    def mat(k, *shape):
        return (jax.random.normal(k, shape) * 0.02).astype(jnp.bfloat16)

    return {"emb": mat(ks[0], VOCAB, DIM), "out": mat(ks[1], DIM, VOCAB),
            "qkvo": [mat(k, 4, DIM, DIM) for k in ks[2:]]}


def empty_cache():
    return jnp.zeros((LAYERS, 2, BATCH, MAXLEN, HEADS, HDIM), jnp.bfloat16)


@partial(jax.jit, donate_argnums=1)
def decode(params, cache, token, pos):
    x = params["emb"][token]
    visible = jnp.arange(MAXLEN) <= pos
    for l, w in enumerate(params["qkvo"]):
        q, k, v = (jnp.reshape(x @ w[j], (BATCH, HEADS, HDIM)) for j in range(3))
        cache = cache.at[l, 0, :, pos].set(k).at[l, 1, :, pos].set(v)
        s = jnp.einsum("bhd,bthd->bht", q, cache[l, 0]) / HDIM ** 0.5
        a = jax.nn.softmax(jnp.where(visible, s.astype(jnp.float32), -1e9), axis=-1)
        o = jnp.einsum("bht,bthd->bhd", a.astype(jnp.bfloat16), cache[l, 1])
        x = x + o.reshape(BATCH, DIM) @ w[3]
    return cache, jnp.argmax(x @ params["out"], axis=-1)


class Server:
    def __init__(self):
        self.params = init_params(jax.random.PRNGKey(0))
        self.sessions = {}

    def answer(self, session, first, n_tokens=24):
        cache, token, reply = empty_cache(), first, []
        for pos in range(n_tokens):
            cache, token = decode(self.params, cache, token, pos)
            reply.append(token)
        self.sessions[session] = cache  # HERE
        return jnp.stack(reply, axis=1)


def main():
    server = Server()
    for s in range(80):
        first = jax.random.randint(jax.random.PRNGKey(s), (BATCH,), 0, VOCAB)
        reply = server.answer(f"chat-{s}", first)
        print(f"chat-{s}: {reply[0, :8].tolist()}", flush=True)
    print("served", len(server.sessions), "sessions")


if __name__ == "__main__":
    main()
