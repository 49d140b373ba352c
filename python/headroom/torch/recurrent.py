"""Recurrent nets as cuDNN computes them: LSTM, GRU and RNN as one op, with what it keeps for the backward
pass and its workspace. On a CPU PyTorch takes other ways.

Sizes are what cudnnGetRNNTempSpaceSizes of cuDNN 9.14 said on an H200 for 125,000 shapes (docs/notes/pytorch-memory.md).
"""

import itertools

import torch
from torch._decomp import decomposition_table

_TENSORS_KEPT = {"lstm": 5, "gru": 6, "rnn_tanh": 1, "rnn_relu": 1}  # for each layer and direction
_GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
_PARAMETERS = 256  # bytes
_LAYER = 8 << 20  # bytes for each layer and direction
_STATE = 24  # bytes of dropout's random numbers for each thread of the GPU (cudnnDropoutGetStatesSize)


class _Shape:
    """One call: `steps` of at most `batch` sequences, `rows` of them in all, packed or padded."""

    def __init__(self, kind, x, batch_sizes, batch_first, hx, weights, layers, dropout, directions, train):
        self.kind, self.layers, self.directions, self.train = kind, layers, directions, train
        self.rows, self.inputs = x.numel() // x.size(-1), x.size(-1)
        self.is_packed = batch_sizes is not None
        if self.is_packed:
            self.steps, self.batch = len(batch_sizes), int(batch_sizes[0])
        else:
            self.batch, self.steps = (x.size(0), x.size(1)) if batch_first else (x.size(1), x.size(0))
        self.hidden = hx[-1].size(-1)  # of an LSTM with projections that of its cells
        self.outputs = hx[0].size(-1)
        self.dtype, self.element = hx[0].dtype, hx[0].element_size()
        self.matrices = sum(weight.numel() for weight in weights if weight.dim() > 1) * self.element
        self.has_dropout = dropout > 0

    def kept_bytes(self):
        tensors = _TENSORS_KEPT[self.kind] * self.layers + self.layers - 1
        if self.outputs != self.hidden:
            tensors += self.layers * (1 + self.outputs / self.hidden)
        size = int(self.directions * tensors * self.rows * self.hidden * self.element) + _PARAMETERS
        if self.has_dropout and self.layers > 1:  # a bit for each input of an upper layer, as if padded
            size += (self.layers - 1) * self.directions**2 * self.steps * self.batch * self.hidden // 8
        return size

    def _is_persistent(self, backward):
        """Whether cuDNN keeps the weights in registers: get_algo in cudnn/RNN.cpp. In bfloat16 it does not."""
        gates, hidden = _GATES[self.kind], self.hidden
        if self.is_packed or self.outputs != hidden or self.dtype == torch.bfloat16:
            return False
        if hidden <= (128 if backward else 192) * (2 if gates == 1 else 1):
            return True
        is_one = self.layers == self.directions == 1 and hidden <= 1024 and hidden % 128 == self.inputs % 128 == 0
        fits = self.batch % 8 == 0 and self.batch <= 128 and (gates == 4 or self.batch < 96 or hidden < 896)
        return self.dtype == torch.float16 and is_one and fits and gates != 3

    def workspace_bytes(self, backward=False):
        """The larger of what the gradients of weights take (sums) and what the steps take (gates)."""
        gates, layers, d, h = _GATES[self.kind], self.layers, self.directions, self.hidden
        two, cells, small = d - 1, gates == 4, self._is_persistent(backward)
        per_row = (2 * (gates + 3) if two else gates + 1) * h + self.inputs
        once = {1: (3, 10), 3: (5, 14), 4: (10, 24)}[gates][two]
        if small:
            per_row += 4 * gates * h
            once = {1: (4, 10), 3: (4, 10), 4: (8, 18)}[gates][two]
        if self.is_packed:
            per_row -= d * h + self.inputs
            once -= (4 if cells else 2) * d
        if self.has_dropout and not two:
            per_row += h
        of_gates = per_row * self.rows + once * layers * h * self.batch
        if not two and not small:
            of_gates -= gates * max(0, self.steps - 256) * h * self.batch
        size = max(of_gates, self._sums(small)) if self.train else of_gates
        if not self.is_packed:
            size += -(-2 * self.batch // 8) * 8
        return layers * d * _LAYER + self.matrices + _PARAMETERS + int(size) * self.element

    def _sums(self, small):
        gates, layers, d, h = _GATES[self.kind], self.layers, self.directions, self.hidden
        two, cells = d - 1, gates == 4
        per_row = (3 * d + 2 * two * (layers > 1)) * h + 2 * self.inputs + (3 * d - 2) * max(h, self.inputs)
        once = 5 + 9 * two + 6 * d * cells
        if self.is_packed:
            per_row -= 2 * d * h + 2 * self.inputs
            once -= 4 * d
        if small:
            per_row += ({1: 9, 3: 14, 4: 12}[gates] + (layers > 1 and not two)) * h
            once += 1 - two
        size = per_row * self.rows + once * layers * h * self.batch
        if layers > 1 and not two and not small:  # one tensor of all steps is instead one of some steps at a time
            at_once = 16 if self.batch <= 8 else 8 if self.batch <= 16 else 4 if self.batch <= 64 else 2
            at_once = max(at_once, 8) if self.steps > 128 else at_once
            needed = ((layers + 1) * at_once + max(0, 8 - at_once)) * self.batch
            size -= max(0, self.rows - needed) * h
        return size


def _make_function(tracer, shape, compute):
    name = "aten::_cudnn_rnn"

    class Recurrent(torch.autograd.Function):
        """The order of allocations is that of _cudnn_rnn and _cudnn_rnn_backward in cudnn/RNN.cpp."""

        @staticmethod
        def forward(ctx, x, batch_first, flat, count, *tensors):
            hx = tensors[:count]
            steps = x.transpose(0, 1) if batch_first else x
            dense = steps.contiguous()
            if shape.has_dropout and shape.train:
                tracer.library_workspace("cuDNN dropout", _STATE * tracer.gpu.threads * tracer.gpu.processors)
            output = dense.new_empty((*steps.shape[:-1], shape.directions * shape.outputs))
            last = [state.new_empty(state.shape) for state in hx]
            with tracer.held(name, [shape.workspace_bytes()]):
                kept = dense.new_empty((shape.kept_bytes() if shape.train else 0,), dtype=torch.uint8)
            if len({state.shape for state in hx}) == 1:
                tracer.values.give(compute, [dense, list(tensors)], [output, *last])
            else:  # PyTorch composes no projections
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
            tracer.temporaries(name, [shape.workspace_bytes(backward=True)])
            del rows, dense
            dense = steps.contiguous()
            of_weights = dense.new_zeros((sum(weight.numel() for weight in weights),))
            tracer.temporaries(name, [shape.workspace_bytes(backward=True)])
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
    of_padded, of_packed = (decomposition_table[getattr(getattr(torch.ops.aten, kind), form)] for form in ("input", "data"))

    def run(x, batch_sizes, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first):
        hx = list(hx) if isinstance(hx, (list, tuple)) else [hx]
        weights = list(params)
        x, hx, flat = _cast(autocast, x, hx, weights)
        directions = 2 if bidirectional else 1
        dropout *= train
        shape = _Shape(kind, x, batch_sizes, batch_first, hx, weights, num_layers, dropout, directions, train)

        def compute(steps, tensors):
            """On real tensors, whose first dimension are the steps."""
            steps, tensors = steps.float(), [tensor.float() for tensor in tensors]
            states, weights = tensors[: len(hx)], tensors[len(hx) :]
            states = states if kind == "lstm" else states[0]
            rest = (states, weights, has_biases, num_layers, 0.0, False, bidirectional)
            return of_padded(steps, *rest, False) if batch_sizes is None else of_packed(steps, batch_sizes, *rest)

        return _make_function(tracer, shape, compute)(x, batch_first, flat, len(hx), *hx, *weights)

    def padded(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first):
        if not tracer.is_on_gpu(params[0]):
            return of_padded(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)
        return run(input, None, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)

    def packed(data, batch_sizes, hx, params, has_biases, num_layers, dropout, train, bidirectional):
        if not tracer.is_on_gpu(params[0]):
            return of_packed(data, batch_sizes, hx, params, has_biases, num_layers, dropout, train, bidirectional)
        return run(data, batch_sizes, hx, params, has_biases, num_layers, dropout, train, bidirectional, False)

    return padded, packed


def _make_cell(tracer, parts, of_workspace):
    """One step of an LSTM (which has cells) or a GRU as one kernel for all gates (RNN.cu): it keeps both products and a
    workspace, and has the gradients of both products.
    """
    is_lstm = parts == 4

    class Cell(torch.autograd.Function):
        @staticmethod
        def forward(ctx, of_input, of_hidden, last, *biases):
            rows, width = last.shape
            workspace = last.new_empty((rows, of_workspace * width))
            made = [last.new_empty(last.shape) for _ in range(1 + is_lstm)]
            for value in made:
                tracer.values.forget(value)
            ctx.save_for_backward(of_input, of_hidden, last, workspace, *made[1:], *biases)
            return tuple(made)

        @staticmethod
        def backward(ctx, *gradients):
            last, workspace = ctx.saved_tensors[2:4]
            shape = (last.shape[0], parts * last.shape[1])
            gates = workspace.new_empty(shape)
            others = gates if is_lstm else workspace.new_empty(shape)
            of_last = last.new_empty(last.shape)
            has_bias = ctx.needs_input_grad[3]
            of_biases = [gates.sum(0)] * 2 if has_bias and is_lstm else [gates.sum(0), others.sum(0)] if has_bias else []
            return (gates, others, of_last, *of_biases)

    def cell(input, hx, w_ih, w_hh, b_ih=None, b_hh=None):
        hidden = hx[0] if is_lstm else hx
        products = (torch.nn.functional.linear(input, w_ih), torch.nn.functional.linear(hidden, w_hh))
        biases = [bias for bias in (b_ih, b_hh) if bias is not None]
        made = Cell.apply(*products, hx[1] if is_lstm else hx, *biases)
        return made if is_lstm else made[0]

    return cell


def install(tracer, library, autocast):
    for name, parts, of_workspace in (("lstm_cell", 4, 4), ("gru_cell", 3, 5)):
        cell = _make_cell(tracer, parts, of_workspace)
        for key in ("AutogradCPU", "CPU"):
            library.impl(name, cell, key)
        tracer.composites[getattr(torch.ops.aten, name).default] = cell
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
