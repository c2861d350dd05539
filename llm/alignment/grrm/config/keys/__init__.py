"""The declarations: one key of an argument file each, in sections. A stage combines sections, see `grrm.config.stages`.

Keys of PaddleNLP's TrainingArguments have its types and defaults, which a test compares with the installed version.
"""
