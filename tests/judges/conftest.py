import pytest

from grrm.judges.interface import GeneratedText


class ScriptedGenerator:
    """Stands in for a language model: a prompt gets the next reply of the first key that occurs in it.

    One character of a prompt is one token, and so is a whole reply. Every call is recorded; running out of replies is
    an IndexError. A reply that ends with "[cut]" hits the length limit there.
    """

    def __init__(self, script):
        self.script = {key: list(replies) for key, replies in script.items()}
        self.calls = []

    def generate_text(self, prompts, *, temperature, top_p=1.0, max_new_tokens, seeds=None):
        self.calls.append({"prompts": list(prompts), "temperature": temperature, "top_p": top_p, "seeds": list(seeds)})
        return [self._generated(self._reply(prompt)) for prompt in prompts]

    def _reply(self, prompt):
        return next(replies for key, replies in self.script.items() if key in prompt).pop(0)

    def _generated(self, reply):
        text = reply.removesuffix("[cut]")
        return GeneratedText(text, "stop" if text == reply else "length", 1)

    def count_tokens(self, prompt):
        return len(prompt)


@pytest.fixture
def scripted():
    return ScriptedGenerator
