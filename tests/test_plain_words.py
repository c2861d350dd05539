"""The check of names and docstrings that `make lint` runs."""

import runpy
from pathlib import Path

CHECK = runpy.run_path(str(Path(__file__).parent.parent / "tools/plain_words.py"))
SOURCE = '''"""Where it begins."""

class WantedWords:
    """Words.

    {long}
    """

    def read(self, n_left):
        self.holds = [one for one in range(n_left)]
        alone = self.holds
'''


def test_definitions_with_vague_words_question_openings_and_long_paragraphs_are_reported():
    assert CHECK["findings_of"](SOURCE.format(long="word " * 60)) == [
        "1: docstring opens with Where: Where it begins.",
        "3: name WantedWords contains wanted",
        "9: name n_left contains left",
        "10: name holds contains holds",
        "10: name one contains one",
    ]
    assert "3: paragraph of 61 words: word" in CHECK["findings_of"](SOURCE.format(long="word " * 61))[2]


def test_names_that_are_only_used_are_not_reported():
    assert CHECK["findings_of"]("import x\nx.place(one=x.whole)\n") == []
