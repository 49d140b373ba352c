"""Random numbers that a traced program draws, for when somebody asks for them."""

import torch


class Draws:
    """Gives each draw a seed of its own: the numbers do not depend on which others are asked for."""

    def __init__(self, seed=0):
        self._next = seed << 32

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
