"""A script for two tensor ranks: each draws with its part of a random model, and writes what it got as JSON.

python -m paddle.distributed.launch --nproc_per_node 2 divided_sampling.py FOLDER tied|untied|llama|undivided
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from paddle.distributed import fleet

sys.path.insert(0, str(Path(__file__).parents[2]))

from engine.paddle.fused_reference import reference_operators
from support.tiny_models import build_model

from grrm.engine.api import SamplingParams
from grrm.engine.paddle import policy_engines
from grrm.engine.paddle.gpu_decoder import GpuDecoder
from grrm.engine.paddle.plain_decoder import round_up
from grrm.engine.paddle.policy_engines import DividedEngine, as_first_rank
from grrm.entry import run_main
from grrm.errors import UserError
from grrm.models.gathered_weights import part_of
from grrm.parallel.gloo import support_gloo
from grrm.parallel.tensor_ranks import TensorRanks, tensor_group

VOCAB = 96
PROMPTS = ([[5, 9, 2, 33], [5, 9, 2, 33], list(range(1, 22)), [7]], [[90, 91, 3], [8] * 17])
PARAMS = SamplingParams(max_new_tokens=12, temperature=0.9, top_p=0.95, stop_token_ids=(4,), seed=3)


def whole_model(kind: str) -> Any:
    """The model that the ranks divide; of one kind they do not divide the vocabulary, which each has whole."""
    architecture = "llama" if kind == "llama" else "qwen2"
    return build_model(architecture, vocab_size=VOCAB + (kind == "undivided"), tie_word_embeddings=kind == "tied")


def drawn(engine: Any, prompts: list[list[int]], first: int) -> list[dict[str, Any]]:
    """Completions as plain data, of streams from `first` on."""
    ended: dict[int, Any] = {}
    got = engine.generate(prompts, PARAMS, range(first, first + len(prompts)), ended.__setitem__)
    assert [ended[i] for i in range(len(got))] == got
    return [asdict(one) for one in got]


def fused_logits(part: Any) -> list[list[float]]:
    """Of a prompt and of one token behind it, by the decoder for GPUs with its operators written in NumPy."""
    decoder = GpuDecoder(part, reference_operators())
    cache, slots, prompt = decoder.new_cache(1, 32), np.array([0]), np.array([PROMPTS[0][2]])
    first = decoder.prefill(prompt, np.array([prompt.size]), cache, slots, slots)
    second = decoder.decode(slots, np.array([40]), np.array([prompt.size]), cache)
    return [logits.numpy()[0].tolist() for logits in (first, second)]


def in_little_memory(part: Any, rank: int) -> dict[str, Any]:
    """What is drawn, and how many sequences ran at a time, where rank 0 has room for four and rank 1 for two."""
    engine = DividedEngine(part, max_num_seqs=4, max_cache_bytes=None, memory_fraction=1.0)
    whole = round_up(max(map(len, chain(*PROMPTS))) + PARAMS.max_new_tokens)
    policy_engines.free_memory_bytes = lambda: (4 - 2 * rank) * engine._decoder.cache_bytes(whole)
    return {"drawn": drawn(engine, PROMPTS[rank], 100 * rank), "running": engine.cache_use.max_running}


def refusal(engine: DividedEngine, prompts: list[list[int]], params: SamplingParams = PARAMS) -> str:
    """What `generate` raises."""
    try:
        engine.generate(prompts, params)
    except (UserError, FloatingPointError) as error:
        return str(error)
    return "nothing"


def diverged(*given: Any, **options: Any) -> Any:
    """A sampler that finds no numbers."""
    raise FloatingPointError("not finite")


def main(folder: Path, kind: str) -> None:
    """Draw, and write what came."""
    support_gloo()
    strategy = fleet.DistributedStrategy()
    strategy.hybrid_configs = {"dp_degree": 1, "mp_degree": 2, "pp_degree": 1, "sharding_degree": 1}
    fleet.init(is_collective=True, strategy=strategy)
    rank = tensor_group().rank
    part = part_of(whole_model(kind), TensorRanks(rank, 2).model_settings())
    engine = DividedEngine(part, max_num_seqs=4)
    found: dict[str, Any] = {"all": drawn(engine, PROMPTS[rank], 100 * rank)}
    found["alone"] = drawn(engine, PROMPTS[0] if rank == 1 else [], 0)
    found["in little memory"] = in_little_memory(part, rank)
    found["refused"] = refusal(engine, [[part.config.vocab_size]] if rank else [[1]])
    found["fused"] = fused_logits(part)
    if rank == 0:  # the others do not notice it by themselves
        engine._sample = as_first_rank(diverged)
    found["diverged"] = refusal(engine, [[1]])
    found["diverged with penalties"] = refusal(engine, [[1]], replace(PARAMS, frequency_penalty=0.5))
    (folder / f"{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    run_main(lambda: main(Path(sys.argv[1]), sys.argv[2]))  # without the teardown in which Paddle may abort
