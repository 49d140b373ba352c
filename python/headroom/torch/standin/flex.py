"""flex_attention() as its compiled kernels take it: the result and the logarithm of each row's sum, and in the backward
pass one more number for each row and the gradients. They never make the scores.
"""

import torch

from .patch import patch

_COMPILED = "flex_attention is traced as compiled; without torch.compile it makes all scores and takes more"


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, query, key, value):
        result = query.new_empty((*query.shape[:-1], value.shape[-1]))
        sums = query.new_empty(query.shape[:-1], dtype=torch.float32)
        ctx.set_materialize_grads(False)  # of the sums
        ctx.save_for_backward(query, key, value, result, sums)
        return result, sums

    @staticmethod
    def backward(ctx, gradient, _):
        query, key, value, result, sums = ctx.saved_tensors
        products = torch.empty_like(sums)
        gradients = tuple(torch.empty_like(tensor) for tensor in (query, key, value))
        del products
        return gradients


def flex(tracer, stack):
    """Returns the hook of its module."""

    def attention(module):
        original = module.flex_attention

        def flex_attention(query, key, value, *args, return_lse=False, return_aux=None, **kwargs):
            if torch.compiler.is_compiling():
                return original(query, key, value, *args, return_lse=return_lse, return_aux=return_aux, **kwargs)
            tracer.assumed[_COMPILED] = True
            result, sums = _Attention.apply(query, key, value)
            if return_aux is not None:
                most = torch.empty_like(sums) if return_aux.max_scores else None
                return result, module.AuxOutput(lse=sums if return_aux.lse else None, max_scores=most)
            return (result, sums) if return_lse else result

        flex_attention.compiled_form = original
        patch(stack, module, "flex_attention", flex_attention)

    return {"torch.nn.attention.flex_attention": attention}
