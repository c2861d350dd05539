"""Programs that run in environments of their own, by their path: `python PROGRAM.py REQUEST.json ANSWER.json`.

They import nothing of this package. A request is {"model", "sources", "hypotheses", "references"}, an answer
{"scores"}.
"""
