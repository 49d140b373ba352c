"""Answers to Transformers' questions about masks whose values a trace does not know."""

_ANSWERS = {
    # They leave a mask out that hides nothing. A program that has one made of its data hides padding.
    "_ignore_causal_mask_sdpa": False,
    "_ignore_bidirectional_mask_sdpa": False,
    "flash_attention_mask": False,
    "flex_attention_mask": False,
    "create_recurrent_attention_mask": False,
    # Looks for padding only to warn about it.
    "warn_if_padding_and_no_attention_mask": False,
}


def answer(frame):
    """Returns the assumed value of an unknown condition in a function of Transformers; None elsewhere."""
    is_inside = frame.f_globals.get("__name__", "").startswith("transformers.")
    return _ANSWERS.get(frame.f_code.co_name) if is_inside else None
