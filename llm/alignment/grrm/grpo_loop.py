"""READ THIS FIRST: a minimal GRPO loop with a group judge, built from the components of the full trainer.

    python llm/alignment/grrm/grpo_loop.py CHECKPOINT RL.jsonl [--steps 10] [--prompts 4] [--samples 8] [--lr 1e-4]

A step samples a group of translations per prompt, scores each group with the judge, computes group-relative advantages
and takes one optimizer step. `run_rl.py` adds what a long run needs: several ranks and updates per rollout, a reference
policy, a reward server with failure handling, other advantage rules and losses, dynamic sampling, checkpoints and
resuming, evaluation, logs. Here nothing is saved.

Array names end with their dimensions: R response (all samples of all prompts), T token position in a response, N the
valid response tokens of all responses concatenated, H hidden.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from grrm.startup import configure_process

configure_process()  # settings that paddle reads when it is imported

import paddle

from grrm.algorithms.advantages import ADVANTAGE_RULES
from grrm.config.derive_objective import policy_loss_config
from grrm.data.dataset import read_prompt_items
from grrm.engine.api import SamplingParams
from grrm.engine.paddle.engine import PaddleEngine
from grrm.entry import run_main
from grrm.gqm.extraction import extract_translation
from grrm.judges.text_metric import TextMetricJudge
from grrm.models.chunked_loss import chunked_loss
from grrm.models.cpu_layers import use_cpu_layers
from grrm.models.policy import load_policy
from grrm.models.tokenizer import encoder, load_tokenizer, response_decoder, stop_tokens
from grrm.rewards.failure_policy import FailurePolicy
from grrm.rewards.shaping import ShapingConfig
from grrm.rl.batch import BatchObjective, make_batch
from grrm.rl.experience import advantage_inputs, mean_reward, pad_right, training_rows
from grrm.rl.losses.aggregation import count_denominators
from grrm.rl.records import Row, Scored
from grrm.rl.reward_stage import RewardStage, reward
from grrm.rl.rollout import PromptBatch, RolloutWorker
from grrm.training.callbacks import quiet_paddlenlp

MAX_TOKENS = 64  # of a response
MICRO_BATCH = 16  # responses per forward and backward pass


def main() -> None:
    """Train for a few steps and print one line each."""
    options = read_options()
    quiet_paddlenlp("", is_first=False)
    use_cpu_layers()  # faster CPU versions of PaddleNLP's layers; no effect on a GPU
    tokenizer = load_tokenizer(options.checkpoint)
    policy = load_policy(options.checkpoint)
    prompts = read_prompt_items(options.data, encoder(tokenizer), max_prompt_len=512)
    worker = build_worker(policy, tokenizer, options.samples)
    # Any judge can be used: it takes whole groups and returns one verdict each. This one is chrF against the reference.
    judge = RewardStage(TextMetricJudge(), ShapingConfig(score_scale_factor=0.1, default_reward=0.0), FailurePolicy())
    clip = paddle.nn.ClipGradByGlobalNorm(1.0)
    optimizer = paddle.optimizer.AdamW(options.lr, parameters=policy.parameters(), weight_decay=0.0, grad_clip=clip)
    for step in range(options.steps):
        items = [prompts[(step * options.prompts + i) % len(prompts)] for i in range(options.prompts)]
        # 1. Rollout: the samples of a prompt form a group. 2. Reward: a group is judged as a whole.
        rolled = worker.roll_out(PromptBatch(items, range(len(items)), generation=step))
        groups = reward(judge, rolled)
        # 3. Advantage: each sample relative to its group. 4. Loss. 5. Optimizer step.
        loss = train_on(policy, tokenizer.pad_token_id, rows_of(groups))
        optimizer.step()
        optimizer.clear_grad()
        print(f"step {step + 1}/{options.steps}  reward {mean_reward(groups)[0]:.4f}  loss {loss:+.5f}", flush=True)


def build_worker(policy: Any, tokenizer: Any, samples: int) -> RolloutWorker:
    """A worker that samples `samples` translations of every prompt from the policy's own weights."""
    sampling = SamplingParams(max_new_tokens=MAX_TOKENS, stop_token_ids=stop_tokens(tokenizer, ""))
    return RolloutWorker(
        engine=PaddleEngine(policy),
        decode=response_decoder(tokenizer),
        extract=lambda response, _: extract_translation(response, "line"),
        sampling=sampling,
        rollout_n=samples,
    )


def rows_of(groups: Sequence[Scored]) -> list[Row]:
    """Samples with their advantages: (reward - mean of the group) / standard deviation of the group, at every token."""
    inputs = advantage_inputs(groups)
    advantages_RT = ADVANTAGE_RULES["grpo"](inputs)
    return [row for group in training_rows(groups, advantages_RT) for row in group]


def train_on(policy: Any, pad_id: int, rows: Sequence[Row]) -> float:
    """Accumulate the gradient of the clipped policy loss over all rows; returns the loss."""
    width = max(len(row.token_ids) for row in rows)
    mask_RT = pad_right([row.mask_T for row in rows], width)
    advantages_RT = pad_right([row.advantages_T for row in rows], width)
    # Token counts of the whole batch, so that the losses of micro-batches add up to the loss of the batch.
    denominators = count_denominators(mask_RT, advantages_RT)
    policy.train()
    total = 0.0
    for start in range(0, len(rows), MICRO_BATCH):
        # Samples of a prompt share one copy of it in a packed row; the policy returns hidden states, not a loss.
        batch = make_batch(rows[start : start + MICRO_BATCH], pad_id, pack_tokens=4096)
        hidden_NH = policy(**batch.tokens.model_inputs()).hidden_NH
        objective = BatchObjective(batch, policy_loss_config(), denominators)
        loss = chunked_loss(hidden_NH, policy.lm_head, batch.tokens, objective)
        loss.backward()
        total += float(loss)
    return total


def read_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("checkpoint", help="folder of a Qwen2, Qwen3 or Llama policy, as saved by run_sft.py")
    parser.add_argument("data", type=Path, help="JSON lines of `grrm data convert --to rl`")
    parser.add_argument("--steps", type=int, default=10, help="optimizer steps (default: %(default)s)")
    parser.add_argument("--prompts", type=int, default=4, help="prompts per step (default: %(default)s)")
    parser.add_argument("--samples", type=int, default=8, help="samples per prompt (default: %(default)s)")
    parser.add_argument("--lr", type=float, default=1e-4, help="learning rate (default: %(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    run_main(main)
