"""Self-play data generation for a board game: two actor processes share the GPU,
the main process collects their results."""
import argparse
import functools
import multiprocessing as mp
from concurrent.futures import ProcessPoolExecutor, as_completed

import numpy as np


def init_policy(jax, key, planes, width, depth, board):
    keys = jax.random.split(key, depth + 2)
    params = {"conv": [], "head": None}
    cin = planes
    for i in range(depth):
        scale = (2.0 / (9 * cin)) ** 0.5
        params["conv"].append(jax.random.normal(keys[i], (3, 3, cin, width)) * scale)
        cin = width
    params["head"] = jax.random.normal(keys[-1], (width, 1)) * 0.1
    return params


def make_apply(jax):
    import jax.numpy as jnp

    def apply(params, obs):
        x = obs
        for w in params["conv"]:
            x = jax.lax.conv_general_dilated(
                x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
            x = jax.nn.relu(x)
        return jnp.squeeze(x @ params["head"], -1)

    return apply


def play(actor, games, moves, board, seed):
    """Runs in its own process: plays `games` games in parallel with a random policy net."""
    import jax
    import jax.numpy as jnp

    key = jax.random.PRNGKey(seed)
    params = init_policy(jax, key, planes=3, width=64, depth=4, board=board)
    apply = make_apply(jax)

    @jax.jit
    def move(params, own, other, key):
        empty = 1.0 - own - other
        obs = jnp.stack([own, other, empty], axis=-1)
        logits = apply(params, obs).reshape(len(own), -1)
        logits = jnp.where(empty.reshape(len(own), -1) > 0, logits, -1e9)
        choice = jax.random.categorical(key, logits)
        placed = jax.nn.one_hot(choice, board * board).reshape(own.shape)
        return other, own + placed, choice

    own = jnp.zeros((games, board, board))
    other = jnp.zeros((games, board, board))
    history = []
    for i in range(moves):
        key, sub = jax.random.split(key)
        own, other, choice = move(params, own, other, sub)
        history.append(np.asarray(choice))
    return actor, np.stack(history, axis=1)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--actors", type=int, default=2)
    p.add_argument("--games", type=int, default=7168)
    p.add_argument("--moves", type=int, default=120)
    p.add_argument("--board", type=int, default=19)
    p.add_argument("--rounds", type=int, default=3)
    args = p.parse_args()

    ctx = mp.get_context("spawn")
    run = functools.partial(play, games=args.games, moves=args.moves, board=args.board)
    total = 0
    with ProcessPoolExecutor(max_workers=args.actors, mp_context=ctx) as pool:  # HERE
        for rnd in range(args.rounds):
            jobs = [pool.submit(run, a, seed=rnd * 100 + a) for a in range(args.actors)]  # HERE
            for job in as_completed(jobs):
                actor, moves = job.result()
                total += moves.size
                print(f"round {rnd} actor {actor}: {moves.shape[0]} games, "
                      f"first move spread {np.unique(moves[:, 0]).size}", flush=True)
    print(f"{total} positions")


if __name__ == "__main__":
    main()
