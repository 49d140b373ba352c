"""Finds what the models and optimizers of a PyTorch program have, for the verdict of `headroom run`: weights that take
most, that no optimizer trains, that are trained unseen, hooks and options that have a model keep or return more."""

import ast
import collections
import difflib
import sys

import headroom_objects as objects
import headroom_source as source

_COMMON = {"base_model", "model", "module", "default", "weight", "bias"}  # parts of names of weights that tell nothing
_COMMON |= {"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}


def _optimizers():
    """PyTorch's optimizers, without those that wrap another, and the weights that they train, by identity."""
    torch = sys.modules.get("torch")
    found = objects.alive(torch.optim.Optimizer) if torch else []
    found = [each for each in found if not isinstance(vars(each).get("optimizer"), torch.optim.Optimizer)]
    return found, {id(weight) for each in found for group in each.param_groups for weight in group["params"]}


def untrained(frames):
    """The weights on a GPU that require gradients though no optimizer has them: their bytes, the bytes of their
    gradients, and the class of a model made of them that runs with gradients, with a line that calls it; empty where
    no optimizer is alive."""
    torch = sys.modules.get("torch")
    optimizers, trained = _optimizers()
    if not trained:
        return {}
    modules = objects.modules_of_torch()
    weights = {id(w): w for module in modules for w in module._parameters.values() if w is not None}
    # Weights of functional_call are computed: what they come from may be trained.
    is_left = lambda key, w: w.is_cuda and w.requires_grad and key not in trained and getattr(w, "is_leaf", True)
    left = {key: w for key, w in weights.items() if is_left(key, w)}
    runs, most, root = "", 0, None
    frames = [frame for frame in frames if torch.is_grad_enabled()]
    callers = {id(objects.variables(frame).get("self")) for frame in frames}
    for frame in frames:  # what its line calls runs, or has run
        calls = source.nodes_at(frame.f_code.co_filename, frame.f_lineno or 0)
        callers |= {id(objects.variables(frame).get(source.name_of(call))) for call in calls} - {id(None)}
    in_graphs = objects.weights_in_graphs(frames)
    for module in modules if left else ():
        own = [id(w) for w in module.parameters()]
        is_run = id(module) in callers or not in_graphs.isdisjoint(own)
        if len(own) > most and is_run and all(key in left for key in own):
            runs, most, root = type(module).__name__, len(own), module
    gradients = sum(w.grad.nbytes for w in left.values() if w.grad is not None)
    facts = {"bytes": sum(w.nbytes for w in left.values()), "gradients": gradients, "runs": runs}
    own = [frame for frame in frames if root is not None and source.is_own(frame.f_code.co_filename)]
    names = {name for frame in own for _, name, _, value in objects.variables_of(frame) if value is root}
    facts["line"] = next((line for line, _ in source.calls_of(own, names)), "")
    set_names = {name for w in left.values() for name in vars(w)}
    for name in difflib.get_close_matches("requires_grad", set_names, 1, 0.8):
        line = source.line_of_parts(source.own_files(frames), [name])
        facts |= {"misspelt": {"name": name, "line": line}} if line else {}
    return facts


def weights(frames):
    """The models that take most: the variable that has one, the line that makes it, and the bytes of its weights and
    gradients; three or more of a class together, with the line that makes most of them."""
    variables, roots, models = {}, objects.roots(), []
    for frame in filter(lambda frame: source.is_own(frame.f_code.co_filename), frames):
        for text, name, _, value in objects.variables_of(frame):
            if id(value) in roots and text != "self":
                variables.setdefault(id(value), (text, source.line_that_makes(name, text, frame)))
    seen, kinds = set(), []
    for model in (module for module in objects.modules_of_torch() if id(module) in roots):
        own = [w for w in model.parameters() if w.is_cuda and id(w) not in seen and getattr(w, "is_leaf", True)]
        seen |= {id(weight) for weight in own}  # models may share a part
        size = sum(w.nbytes + (w.grad.nbytes if w.grad is not None else 0) for w in own)
        if size:
            doubles = sum(w.nbytes for w in own if str(w.dtype) == "torch.float64")
            models.append((type(model).__name__, size, doubles, *variables.get(id(model), ("", ""))))
            # Layers in a list are no models, and containers of PyTorch are of one kind if they are equally large.
            of_torch = type(model).__module__.startswith("torch.nn.")
            same = sum(w.nbytes for w in own) if model._modules else id(model)
            kinds.append((type(model).__name__, same if of_torch else 0))
    counts = collections.Counter(() if are_being_made(frames) else kinds)
    lines, found = {}, {}
    for key, (kind, size, doubles, text, line) in zip(kinds, models):
        if counts[key] > 2 or not text:
            if kind not in lines:
                lines[kind] = source.line_that_calls(source.own_files(frames), kind)
            text, line = kind, lines[kind] or line
        count = counts[key] if counts[key] > 2 else 1
        nothing = {"name": text, "line": line, "bytes": 0, "doubles": 0, "count": count}
        entry = found.setdefault((kind, text, count), nothing)
        entry["bytes"] += size
        entry["doubles"] += doubles
    return sorted(found.values(), key=lambda each: -each["bytes"])[:4]


def are_being_made(frames):
    """True while a module of PyTorch is made: the parts that it has so far are no models."""
    kind = sys.modules["torch"].nn.Module if "torch" in sys.modules else ()
    starts = (frame for frame in frames if frame.f_code.co_name == "__init__")
    return any(issubclass(type(objects.variables(frame).get("self")), kind) for frame in starts)


def hooks(frames):
    """How often one function of the program is a hook of the same module, optimizer or weight, or of all of them; the
    variables that its closures keep, their bytes, and the call that registers it."""
    torch = sys.modules.get("torch")
    modules = objects.modules_of_torch()
    weights = [weight for module in modules for weight in module._parameters.values() if weight is not None]
    named = {"module": modules, "optimizer": objects.alive(torch.optim.Optimizer) if torch else [], "weight": weights}
    every = [sys.modules[name] for name in ("torch.nn.modules.module", "torch.optim.optimizer") if name in sys.modules]
    found = {}
    for kind, owner in ((k, owner) for k, owners in {**named, "process": every}.items() for owner in owners):
        for _, hook in objects.hooks_of(owner):
            function = getattr(hook, "func", hook)  # of functools.partial
            function = getattr(function, "__func__", function)
            code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
            if code and source.is_own(code.co_filename):
                found.setdefault((kind, id(owner), code), {})[id(hook)] = hook
    (kind, _, code), same = max(found.items(), key=lambda each: len(each[1]), default=(("", 0, None), {}))
    if code is None:
        return {"count": 0}
    kept = {}
    for name, value in (each for hook in same.values() for each in objects.children(hook) if each[0]):
        parts = [part for _, part in objects.children(value)] if objects.is_list(value) else [value]
        kept[name] = kept.get(name, {}) | objects.sizes(parts)
    total = {key: size for sizes in kept.values() for key, size in sizes.items()}
    names = ", ".join(name for name, sizes in kept.items() if 5 * sum(sizes.values()) > sum(total.values()))
    line, call = source.line_that_registers(source.own_files(frames), code)
    facts = {"count": len(same), "name": code.co_name, "line": line, "call": call, "owner": kind}
    return facts | {"names": names, "bytes": sum(total.values())}


def outputs(frames):
    """The option that has a model of Transformers return more of each layer or step, and the line that sets it."""
    configs = [getattr(vars(module).get("config"), "__dict__", {}) for module in objects.modules_of_torch()]
    words = [word for path in source.own_files(frames) for word in source.nodes_in(source.tree_of(path), ast.keyword)]
    words = {word.arg for word in words if getattr(word.value, "value", None) is True}
    for name in ("output_hidden_states", "output_attentions", "output_scores", "output_logits"):
        if name in words or any(config.get(name) or config.get("_" + name) for config in configs):
            return {"name": name, "line": source.line_of_parts(source.own_files(frames), [name])}
    return {}


def trained(frames):
    """The weights that are a fifth or more of all that optimizers train: their names, and a line that names them."""
    optimizers, trained = _optimizers()
    roots = objects.roots() if trained else ()
    weights = {}
    for module in objects.modules_of_torch() if roots else []:
        for path, weight in module.named_parameters() if id(module) in roots else ():
            if weight.is_cuda and id(weight) in trained:
                weights[id(weight)] = (weight.nbytes, path)
    total = sum(size for size, _ in weights.values())
    large = sorted((entry for entry in weights.values() if entry[0] >= max(1, total / 5)), reverse=True)
    parts = [part for _, path in large for part in path.split(".") if not part.isdigit() and part not in _COMMON]
    names = [".".join([part for part in path.split(".") if part in parts][:3]) for _, path in large]
    line = source.line_of_parts(source.own_files(frames), parts) if large else ""
    facts = {"names": ", ".join(names), "bytes": sum(size for size, _ in large), "total": total, "line": line}
    made = makers_of(optimizers, frames)
    return facts | {"optimizers": len(optimizers), "class": made and type(optimizers[0]).__name__, "made": made}


def makers_of(optimizers, frames):
    """The first line that makes an optimizer of such a class, or names one for a trainer."""
    lines = [line for line, _ in source.calls_of(frames, {type(each).__name__ for each in optimizers})]
    return (lines + [source.line_of_parts(source.own_files(frames), ["optim"])])[0]


def evaluating(frames):
    """A part of a model in training that is in evaluation mode, though an optimizer trains it: its class, the bytes of
    its weights, and the line that makes an optimizer."""
    optimizers, trained = _optimizers()
    most = {"bytes": 0}
    for module in objects.modules_of_torch() if trained else []:
        for part in module._modules.values() if module.training else ():
            if part is not None and not part.training:
                size = sum(weight.nbytes for weight in part.parameters() if weight.is_cuda and id(weight) in trained)
                if size > most["bytes"]:
                    most = {"name": type(part).__name__, "bytes": size, "line": makers_of(optimizers, frames)}
    return most
