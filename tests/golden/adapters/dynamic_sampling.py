"""Group filters of PaddleNLP and DAPO (ours decides by exact equality, so it has no vectors of its own)."""

from support.reference_rewards import dapo_kept_groups, paddlenlp_valid_indices


def paddlenlp(row):
    kept = paddlenlp_valid_indices(row["rewards"], row["index"], row["rollout_n"], row["variance_threshold"])
    return {"valid_indices": kept, "num_valid_prompts": len(kept) // row["rollout_n"]}


def dapo(row):
    kept = dapo_kept_groups(row["rewards"], row["index"])
    return {"kept_uids": kept, "kept_indices": [i for i, uid in enumerate(row["index"]) if uid in kept]}


COMPAT = {"paddlenlp.filter_valid_reward_groups": paddlenlp, "verl.dapo_filter_groups": dapo}
