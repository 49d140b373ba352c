"""What of Numba's published interface an External Memory Management plugin meets."""
