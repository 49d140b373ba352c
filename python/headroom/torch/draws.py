"""Random numbers that a traced program draws, for when somebody asks for them."""

import random
import sys

import torch


def seed_python(seed):
    """Gives Python's and NumPy's own random numbers of a program that seeds none the same start in each trace."""
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)


class Draws:
    """Gives each draw a seed of its own: the numbers do not depend on which others are asked for."""

    def __init__(self):
        self._next = 0

    def begin(self, seed):
        """From here on draws are those of a seed."""
        self._next = seed << 28  # PyTorch takes 32 bits of it

    def next(self):
        """Returns a function that runs another with the numbers of the next draw."""
        self._next += 1
        seed = self._next

        def draw(work):
            generator = torch.default_generator
            state = generator.get_state()
            generator.manual_seed(seed)
            try:
                return work()
            finally:
                generator.set_state(state)

        return draw
