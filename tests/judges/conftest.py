import pytest
from support.text_models import TextModel, cut_off


class ScriptedGenerator(TextModel):
    """A prompt gets the next reply of the first key that occurs in it; running out of replies is an IndexError.

    A reply that ends with "[cut]" hits the length limit there.
    """

    def __init__(self, script):
        left = {key: list(replies) for key, replies in script.items()}

        def reply(prompt):
            text = next(replies for key, replies in left.items() if key in prompt).pop(0)
            return cut_off(text.removesuffix("[cut]")) if text.endswith("[cut]") else text

        super().__init__(reply)


@pytest.fixture
def scripted():
    return ScriptedGenerator
