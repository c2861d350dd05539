"""Write a tiny random model of transformers and its logits, in an environment that has torch and transformers.

python tests/golden/models/record.py Qwen3|Qwen2Moe FOLDER
"""

import json
import sys
from pathlib import Path

import torch
import transformers

torch.manual_seed(3)
kind, folder = sys.argv[1], Path(sys.argv[2])
settings = {
    "Qwen3": {"head_dim": 6, "tie_word_embeddings": True},
    "Qwen2Moe": {
        "num_experts": 5,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 8,
        "shared_expert_intermediate_size": 12,
    },
}
config = getattr(transformers, f"{kind}Config")(
    vocab_size=64,
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
    rope_theta=5000.0,
    initializer_range=0.3,
    **settings[kind],
)
model = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
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
