"""Text in, text out, over any engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

from grrm.engine.api import Completion, Engine, SamplingParams
from grrm.errors import UserError
from grrm.judges.interface import GeneratedText, TokenChoices


class EngineTextGenerator:
    """`judges.interface.TextGenerator` over an `Engine` and `encode` and `decode` of its model's tokenizer.

    Prompts are complete (chat template applied), so nothing is added when encoding; special tokens are left out
    of the reply. `seed` keys every reply's random stream. Raises UserError when there is no stop token at all.
    """

    def __init__(
        self,
        engine: Engine,
        encode: Callable[[str], list[int]],
        decode: Callable[[Sequence[int]], str],
        stop_token_ids: Sequence[int],
        seed: int = 0,
    ) -> None:
        if not stop_token_ids:
            raise UserError("The tokenizer has no eos_token: set it in tokenizer_config.json or give stop_token_ids.")
        self._engine, self._encode, self._decode = engine, encode, decode
        self._stop_token_ids, self._seed = tuple(stop_token_ids), seed
        self._streams = count()
        self._pieces: dict[int, str] = {}

    def generate_text(
        self,
        prompts: Sequence[str],
        *,
        temperature: float,
        top_p: float = 1.0,
        max_new_tokens: int,
        seeds: Sequence[int] | None = None,
        top_logprobs: int = 0,
    ) -> list[GeneratedText]:
        """One reply per prompt, order kept. Without `seeds` every reply of every call has a stream of its own."""
        params = SamplingParams(
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            top_p=top_p,
            stop_token_ids=self._stop_token_ids,
            seed=self._seed,
            logprobs=False,
            top_logprobs=top_logprobs,
        )
        streams = [next(self._streams) for _ in prompts] if seeds is None else list(seeds)
        completions = self._engine.generate([self._encode(prompt) for prompt in prompts], params, streams)
        return [
            GeneratedText(
                self._decode(completion.token_ids),
                completion.finish_reason,
                len(completion.token_ids),
                self._choices(completion),
            )
            for completion in completions
        ]

    def _choices(self, completion: Completion) -> tuple[TokenChoices, ...]:
        return tuple(
            TokenChoices(self._piece(token), tuple((self._piece(other), logprob) for other, logprob in top))
            for token, top in zip(completion.token_ids, completion.top_logprobs, strict=False)
        )

    def _piece(self, token: int) -> str:
        """The text of a token inside a text: at the beginning some tokenizers leave out its space."""
        if token not in self._pieces:
            anchor = self._encode("A")[-1:]
            before, both = self._decode(anchor), self._decode([*anchor, token])
            self._pieces[token] = both.removeprefix(before)
        return self._pieces[token]

    def count_tokens(self, prompt: str) -> int:
        """Length of `prompt` in tokens, no special tokens added."""
        return len(self._encode(prompt))
