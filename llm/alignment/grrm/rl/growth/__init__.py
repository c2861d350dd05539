"""A judge that starts from what a policy knows.

A judge of a few million parameters does not find out in a demo's time how to hold each word of a candidate against what
was to be expected there, nor which words belong to which candidate. Both are things that attention can be written to
do, so a grown judge begins with them: it scores candidates by how expected their words are to the policy inside, a
judge of groups also by how far they say what all say, and training goes on from there.
"""

from grrm.rl.growth.grow import grow_judge
from grrm.rl.growth.stream import JudgeTokens
from grrm.rl.growth.words import with_words

__all__ = ["JudgeTokens", "grow_judge", "with_words"]
