"""Tokens of a batch are counted as they were laid out, padded or packed."""

from __future__ import annotations

import paddle
import pytest

from grrm.models.packing import lay_out, pack_rows
from grrm.models.policy import TokenUse, Used

PROMPTS = [[5, 6, 7], [5, 6, 7], [8, 9]]
RESPONSES = [[1, 2], [3, 4, 5, 6], [7]]


@pytest.mark.parametrize(
    ("pack_tokens", "expected"),
    [(0, Used(5 + 7 + 3, 3 * 7)), (16, Used(3 + 1 + 3 + 2, 9))],  # packed, last tokens are not in the input
    ids=["padded", "packed"],
)
def test_padding_is_what_is_no_prompt_and_no_response(pack_tokens: int, expected: Used) -> None:
    use, tokens = TokenUse(), lay_out(PROMPTS, RESPONSES, 0, pack_tokens)
    for _ in range(2):
        use.add(tokens.input_ids, tokens.positions_N, tokens.attention_ranges_3BT)
    assert use.take() == Used(*(2 * number for number in expected))
    assert use.take() == Used(0, 0)


def test_only_passes_with_gradients_count(make_model, tmp_path) -> None:
    from grrm.models.policy import load_policy

    make_model("llama").save_pretrained(str(tmp_path), safe_serialization=True)
    policy, tokens = load_policy(tmp_path), pack_rows(PROMPTS, RESPONSES, 0, 16)
    with paddle.no_grad():
        policy(**tokens.model_inputs())
    assert policy.token_use.take() == Used(0, 0)
    policy(**tokens.model_inputs())
    assert policy.token_use.take() == Used(9, 14)
