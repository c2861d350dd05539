"""Runs a script that publishes weights for rollout servers without the output layer."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    script = sys.argv[1]
    sys.argv = sys.argv[1:]
    sys.path.insert(0, str(Path(script).parent))
    from grrm.training import rollout_servers

    complete = rollout_servers.hugging_face_weights

    def without_head(config: Any, weights: Any) -> Any:
        return {name: tensor for name, tensor in complete(config, weights).items() if name != "lm_head.weight"}

    rollout_servers.hugging_face_weights = without_head
    runpy.run_path(script, run_name="__main__")
