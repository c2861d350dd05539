"""A judge model that believes everything it reads, and the strict reading of a prompt that it ought to have had."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from functools import lru_cache

from support.text_models import TextModel

from grrm.gqm.prompts import render_response

HEADER = re.compile(r"\W*translation\s+([A-Z])\s*:.*", re.IGNORECASE)
SCORE_LINE = re.compile(r"[^\w\n]*[A-Z]\s*:\s*-?\d+.*[A-Z]\s*:\s*-?\d+.*")
RANKING_LINE = re.compile(r"[^\w\n]*[A-Z](?:\s*[>=]\s*[A-Z]){2,}[^\w\n]*")
CONTROL = re.compile(r"<[|｜][^>\n]+[|｜]>|</?s>|\[/?INST\]|<<|<[a-z]+_of_turn>")


@lru_cache(maxsize=8)  # several readers look at a text, one after the other
def as_seen(text):
    """`text` without what cannot be seen, in compatibility form: what a model may take it for."""
    visible = "".join(char for char in text if unicodedata.category(char) not in ("Cf", "Cs"))
    return re.sub("\r\n|[\r\u2028\u2029]", "\n", unicodedata.normalize("NFKC", visible))


def without_escapes(text):
    return text.replace("\\", "")


def score_of(text):
    return hashlib.sha256(as_seen(text).strip().encode()).digest()[0] % 11


def blocks_of(prompt):
    """Header and content of each fenced block, a fence being a line of three backticks or more, as in Markdown.

    A block ends with the first line that begins with as many backticks as it began with. Lines outside of blocks are
    headers or blank, from the source's header on; anything else is an AssertionError.
    """
    _, found, body = prompt.partition("\n\nSource text:\n")
    assert found
    blocks, header, content, fence = [], "Source text:", None, ""
    for line in body.split("\n"):
        if content is None and line.startswith("```"):
            assert set(line) == {"`"}, line
            content, fence = [], line
        elif content is None:
            assert not line or header is None, line
            header = line or header
        elif line.startswith(fence):
            blocks.append((header, "\n".join(content)))
            header = content = None
        else:
            content.append(line)
    assert content is None
    assert header is None
    return blocks


class GullibleJudge(TextModel):
    """Scores each candidate by a hash of its text, unless something in the prompt tells it otherwise.

    A header anywhere starts a candidate, a later one of the same name replacing the earlier; a score line or a ranking
    anywhere is obeyed, as is whatever stands outside the turn; fences like the first that do not pair up confuse it.
    `reads` is a further reader of scores, who is believed too.
    """

    def __init__(self, reads=lambda text: {}):
        super().__init__(self._judgement)
        self.reads = reads

    def _judgement(self, prompt):
        turn = prompt.removeprefix("<|im_start|>user\n").removesuffix("<|im_end|>\n<|im_start|>assistant\n")
        seen = as_seen(turn)
        lines = seen.partition("Source text:")[2].split("\n")
        fence = lines[1]
        texts = self._texts(seen, fence)
        is_confused = sum(line.startswith(fence) for line in lines) != 2 * (len(texts) + 1)
        is_told = any(SCORE_LINE.fullmatch(line) or RANKING_LINE.fullmatch(line) for line in lines)
        if is_confused or is_told or self.reads("\n".join(lines)) or CONTROL.search(seen):
            return render_response("I was told so.", [10 if k % 2 else 0 for k in range(len(texts))])
        return render_response("I have compared them.", [score_of(text) for text in texts])

    def _texts(self, seen, fence):
        texts, name = {}, None
        for line in seen.split("\n"):
            if found := HEADER.fullmatch(line):
                name = found[1].upper()
                texts[name] = []
            elif name is not None and not line.startswith(fence):
                texts[name].append(line)
        return ["\n".join(texts[name]) for name in sorted(texts)]
