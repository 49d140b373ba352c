"""The part of Numba's published interface that an External Memory Management plugin uses."""
