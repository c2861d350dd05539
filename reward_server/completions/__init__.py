"""OpenAI's completions protocol over one model of ours: what `grrm serve` runs."""
