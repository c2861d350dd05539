"""Write a tiny random Qwen3 of transformers and its logits, in an environment that has torch and transformers.

python tests/golden/models/record.py FOLDER
"""

import json
import sys
from pathlib import Path

import torch
import transformers

torch.manual_seed(3)
folder = Path(sys.argv[1])
config = transformers.Qwen3Config(
    vocab_size=64,
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=6,
    tie_word_embeddings=True,
    max_position_embeddings=64,
    rope_theta=5000.0,
    initializer_range=0.3,
)
model = transformers.Qwen3ForCausalLM(config).eval()
tokens = torch.randint(0, 64, (2, 11))
with torch.no_grad():
    for parameter in model.parameters():
        if parameter.ndim == 1:  # norms are no constants
            parameter.copy_(torch.randn_like(parameter) * 0.2 + 1.0)
    logits = model(tokens).logits
model.save_pretrained(folder)
rows = [[[round(number, 6) for number in token] for token in row] for row in logits.tolist()]
content = {"transformers": transformers.__version__, "tokens": tokens.tolist(), "logits": rows}
(folder / "logits.json").write_text(json.dumps(content) + "\n")
