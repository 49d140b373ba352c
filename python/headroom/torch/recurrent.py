"""Recurrent nets as cuDNN computes them: LSTM, GRU and RNN as one op, with what it keeps for the backward
pass and its workspace. On a CPU PyTorch takes other ways.

Sizes are those of recorded runs (docs/notes/pytorch-memory.md): what cuDNN keeps is exact, the workspace an
estimate.
"""

import itertools

import torch

_TENSORS_KEPT = {"lstm": 5, "gru": 6, "rnn_tanh": 1, "rnn_relu": 1}  # for each layer and direction
_PARAMETERS = 256  # bytes
_FIXED = 16 << 20
_SUMS = {1: 6, 2: 16}  # tensors of a workspace, by directions


class _Shape:
    def __init__(self, kind, rows, hx, weights, has_biases, layers, dropout, directions):
        self.kind, self.rows, self.layers, self.directions = kind, rows, layers, directions
        self.hidden = hx[-1].size(-1)  # of an LSTM with projections that of its cells
        self.outputs = hx[0].size(-1)
        self.element = hx[0].element_size()
        self.weights = sum(weight.numel() for weight in weights) * self.element
        self.has_dropout = dropout > 0 and layers > 1

    @property
    def tensor(self):
        return self.rows * self.hidden * self.element

    def kept_bytes(self):
        tensors = _TENSORS_KEPT[self.kind] * self.layers + self.layers - 1
        if self.outputs != self.hidden:
            tensors += self.layers * (1 + self.outputs / self.hidden)
        size = int(self.directions * tensors * self.tensor) + _PARAMETERS
        if self.has_dropout:  # a bit for each input of an upper layer
            size += (self.layers - 1) * self.directions**2 * self.rows * self.hidden // 8
        return size

    def workspace_bytes(self):
        tensors = _SUMS[self.directions] + self.directions * self.has_dropout
        return self.weights + _FIXED + tensors * self.tensor


def _make_function(tracer, shape):
    name = "aten::_cudnn_rnn"

    class Recurrent(torch.autograd.Function):
        """The order of allocations is that of _cudnn_rnn and _cudnn_rnn_backward in cudnn/RNN.cpp."""

        @staticmethod
        def forward(ctx, x, batch_first, flat, count, *tensors):
            hx = tensors[:count]
            steps = x.transpose(0, 1) if batch_first else x
            dense = steps.contiguous()
            output = dense.new_empty((*steps.shape[:-1], shape.directions * shape.outputs))
            last = [state.new_empty(state.shape) for state in hx]
            with tracer.held(name, [shape.workspace_bytes()]):
                kept = dense.new_empty((shape.kept_bytes(),), dtype=torch.uint8)
            for state in (output, *last):
                tracer.values.forget(state)
            ctx.batch_first, ctx.count = batch_first, count
            ctx.save_for_backward(x, output, kept, *tensors)
            ctx.flat = flat  # weights in another type
            result = output.transpose(0, 1) if batch_first else output
            return (result, *last)

        @staticmethod
        def backward(ctx, gradient, *of_last):
            x, output, kept, *tensors = ctx.saved_tensors
            hx, weights = tensors[: ctx.count], tensors[ctx.count :]
            steps = x.transpose(0, 1) if ctx.batch_first else x
            dense = steps.contiguous()
            rows = gradient.transpose(0, 1) if ctx.batch_first else gradient
            rows = rows.contiguous()
            of_input = dense.new_empty(steps.shape)
            of_states = [state.new_empty(state.shape) for state in hx]
            tracer.temporaries(name, [shape.workspace_bytes()])
            del rows, dense
            dense = steps.contiguous()
            of_weights = dense.new_zeros((sum(weight.numel() for weight in weights),))
            tracer.temporaries(name, [shape.workspace_bytes()])
            ctx.flat = None
            of_input = of_input.transpose(0, 1) if ctx.batch_first else of_input
            parts = [part.to(w.dtype) for part, w in zip(_parts(of_weights, weights), weights)]
            return (of_input, None, None, None, *of_states, *parts)

    return Recurrent.apply


def _parts(flat, weights):
    """Views of one buffer, with the shapes of the weights."""
    ends = itertools.accumulate(weight.numel() for weight in weights)
    return [
        flat[end - weight.numel() : end].view(weight.shape) for end, weight in zip(ends, weights)
    ]


def _cast(autocast, x, hx, weights):
    """Under autocast: a new buffer for the weights, then the states and the input in its type
    (_cudnn_rnn_cast_reflatten in autocast_mode.cpp)."""
    dtype = torch.get_autocast_dtype("cpu")
    if not torch.is_autocast_enabled("cpu") or weights[0].dtype == dtype:
        return x, hx, None
    flat = weights[0].new_empty((sum(weight.numel() for weight in weights),), dtype=dtype)
    states = [autocast.cast(state, dtype) for state in reversed(hx)]
    return autocast.cast(x, dtype), states[::-1], flat


def _make(tracer, autocast, kind):
    def run(x, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first):
        hx = list(hx) if isinstance(hx, (list, tuple)) else [hx]
        weights = list(params)
        x, hx, flat = _cast(autocast, x, hx, weights)
        directions = 2 if bidirectional else 1
        rows = x.numel() // x.size(-1)
        shape = _Shape(
            kind, rows, hx, weights, has_biases, num_layers, dropout * train, directions
        )
        return _make_function(tracer, shape)(x, batch_first, flat, len(hx), *hx, *weights)

    def padded(
        input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first
    ):
        return run(
            input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first
        )

    def packed(
        data, batch_sizes, hx, params, has_biases, num_layers, dropout, train, bidirectional
    ):
        return run(data, hx, params, has_biases, num_layers, dropout, train, bidirectional, False)

    return padded, packed


def install(tracer, library, autocast):
    for kind in _TENSORS_KEPT:
        padded, packed = _make(tracer, autocast, kind)
        for key in ("AutogradCPU", "CPU"):
            library.impl(f"{kind}.input", padded, key)
            library.impl(f"{kind}.data", packed, key)
        op = getattr(torch.ops.aten, kind)
        tracer.composites.update({op.input: padded, op.data: packed})


def flatten_parameters(module):
    """torch.nn.RNNBase.flatten_parameters on a GPU: the weights move into one buffer."""
    weights = [weight for weight in module._flat_weights if isinstance(weight, torch.Tensor)]
    if not weights or any(not w.is_cuda or w.dtype != weights[0].dtype for w in weights):
        return
    if len({w.untyped_storage()._cdata for w in weights}) == 1 and len(weights) > 1:
        return
    with torch.no_grad():
        flat = weights[0].new_empty((sum(w.numel() for w in weights),))
        for part, weight in zip(_parts(flat, weights), weights):
            part.copy_(weight)
            weight.data = part
