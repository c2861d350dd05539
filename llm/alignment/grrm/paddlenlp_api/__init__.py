"""All that this package takes from PaddleNLP: nothing else imports it, so that a renamed class is renamed here alone.

Each module is one part of PaddleNLP that is imported together.
"""
