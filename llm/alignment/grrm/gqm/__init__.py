"""The group protocol: languages, prompts, answer extraction, verdict grammar, groups. Pure Python."""
