"""Headroom: see, reproduce, explain and fix GPU out-of-memory errors.

`headroom.torch` traces PyTorch programs without a GPU and puts Headroom's strategies under PyTorch.
"""
