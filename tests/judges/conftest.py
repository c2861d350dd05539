import pytest

from grrm.judges.interface import GeneratedText


class ScriptedGenerator:
    """Stands in for a language model: a prompt gets the next reply of the first key that occurs in it.

    One character is one token; every call is recorded. Running out of replies is an IndexError.
    """

    def __init__(self, script):
        self.script = {key: list(replies) for key, replies in script.items()}
        self.calls = []

    def generate_text(self, prompts, *, temperature, top_p=1.0, max_new_tokens, seeds=None):
        self.calls.append({"prompts": list(prompts), "temperature": temperature, "top_p": top_p, "seeds": list(seeds)})
        return [GeneratedText(self._reply(prompt), "stop", 1) for prompt in prompts]

    def _reply(self, prompt):
        return next(replies for key, replies in self.script.items() if key in prompt).pop(0)

    def count_tokens(self, prompt):
        return len(prompt)


@pytest.fixture
def scripted():
    return ScriptedGenerator
