"""Memory of a step of RL above loaded weights on each of two tensor ranks, beside one process alone.

    python benchmarks/tensor_memory.py [--out FILE]

A model with the layers and the vocabulary of Qwen2.5-0.5B, six of its 24 layers and random weights. The step is that of
the RL trainer: eight responses of 448 tokens to a prompt of 512, packed into a row of 4,096 tokens, through the model
with recomputation and through the policy loss, forward and backward, and then AdamW.

Growth is the highest resident memory of a process from there on, less that with the weights loaded. Each process has
one thread. Takes some five minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from machine import command_line, describe_machine, resident_bytes, write_result
from processes import records_of_ranks

SHAPE = {
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 6,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "vocab_size": 151_936,
    "tie_word_embeddings": True,
    "max_position_embeddings": 4096,
}
PROMPT, RESPONSES, LENGTH = 512, 8, 448
LAYOUTS = {"one process": (1, False), "tensor 2": (2, False), "tensor 2, sequence": (2, True)}
MIB = 2**20


def main(arguments: Sequence[str] | None = None) -> None:
    parser = command_line(__doc__, "tensor_memory")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        measure_in_process(options.one[0], Path(options.one[1]))
        return
    rows = [measure(layout) for layout in LAYOUTS]
    for row in rows:
        row["of_one_process"] = round(row["growth_mib"] / rows[0]["growth_mib"], 3)
        print(row, flush=True)
    step = {"prompt": PROMPT, "responses": RESPONSES, "response_tokens": LENGTH}
    result = {"machine": describe_machine(), "model": SHAPE, "step": step, "rows": rows}
    write_result(options.out, result)


def measure(layout: str) -> dict[str, Any]:
    """Growth of the rank that grows most, its weights, and seconds of the step."""
    with tempfile.TemporaryDirectory() as folder:
        records = records_of_ranks([__file__, "--one", layout, folder], LAYOUTS[layout][0], Path(folder))
    return {"layout": layout, **max(records, key=lambda record: record["growth_mib"])}


def measure_in_process(layout: str, folder: Path) -> None:
    """Take the step in this process and write what it took into the folder."""
    from grrm.startup import configure_process

    configure_process()
    import numpy as np
    import paddle

    from grrm.config.derive_objective import policy_loss_config
    from grrm.models.chunked_loss import chunked_loss
    from grrm.models.cpu_layers import use_cpu_layers
    from grrm.rl.batch import BatchObjective, make_batch
    from grrm.rl.experience import Row
    from grrm.rl.losses.aggregation import count_denominators

    paddle.set_device("cpu")
    use_cpu_layers()
    model, rank = build_model(*LAYOUTS[layout])
    model.recompute_enable()
    rng = np.random.default_rng(1)
    prompt = rng.integers(0, SHAPE["vocab_size"], PROMPT).tolist()
    ones_T = np.ones(LENGTH, dtype="float32")
    rows = [
        Row(prompt, rng.integers(0, SHAPE["vocab_size"], LENGTH).tolist(), ones_T * sign, ones_T, -ones_T, None, None)
        for sign in rng.normal(size=RESPONSES)
    ]
    batch = make_batch(rows, 0, PROMPT + RESPONSES * LENGTH)
    denominators = count_denominators(batch.mask_RT.numpy(), batch.advantages_RT.numpy())
    optimizer = paddle.optimizer.AdamW(1e-4, parameters=model.parameters())
    model.train()
    Path("/proc/self/clear_refs").write_text("5")
    loaded, started = resident_bytes("VmRSS"), time.perf_counter()
    objective = BatchObjective(batch, policy_loss_config(), denominators)
    chunked_loss(model(**batch.tokens.model_inputs()).hidden_NH, model.lm_head, batch.tokens, objective).backward()
    backward = resident_bytes("VmHWM")
    optimizer.step()
    record = {
        "weights_mib": round(sum(4 * int(np.prod(parameter.shape)) for parameter in model.parameters()) / MIB),
        "growth_mib": round((resident_bytes("VmHWM") - loaded) / MIB),
        "growth_before_optimizer_mib": round((backward - loaded) / MIB),
        "seconds": round(time.perf_counter() - started, 1),
    }
    (folder / f"rank-{rank}.json").write_text(json.dumps(record))
    if LAYOUTS[layout][0] > 1:
        paddle.distributed.barrier()
        os._exit(0)  # before a peer is gone, which Paddle's teardown takes for a failure


def build_model(n_ranks: int, sequence_parallel: bool) -> tuple[Any, int]:
    """This process's part of a random model, and its rank."""
    from paddle.distributed import fleet

    from grrm.models.policy import policy_class
    from grrm.parallel.gloo import support_gloo
    from grrm.parallel.tensor_ranks import TensorRanks

    ranks = TensorRanks()
    if n_ranks > 1:
        support_gloo()
        strategy = fleet.DistributedStrategy()
        strategy.hybrid_configs = {"mp_degree": n_ranks}
        fleet.init(is_collective=True, strategy=strategy)
        rank = fleet.get_hybrid_communicate_group().get_model_parallel_rank()
        ranks = TensorRanks(rank, n_ranks, sequence_parallel)
    cls = policy_class("qwen2")
    return cls(cls.config_class(**SHAPE, **ranks.model_settings())), ranks.rank


if __name__ == "__main__":
    main()
