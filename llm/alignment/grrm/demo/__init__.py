"""The whole journey on two cores: corpus, tokenizer, SFT, reward server, RL, evaluation, report."""
