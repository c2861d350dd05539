"""The settings of FastDeploy that a user may give, checked without FastDeploy."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from grrm.errors import UserError

# Names and types as in FastDeploy's parameter documentation. Others stay out: some of them load code from a file.
_TYPES: dict[str, tuple[type, ...]] = {
    "tensor_parallel_size": (int,),  # GPUs the weights are spread over
    "max_model_len": (int,),  # tokens of a prompt and its reply together; default: the model's positions
    "gpu_memory_utilization": (float, int),  # share of a GPU's memory for weights, activations and KV cache
    "quantization": (str,),  # wint8 or wint4: weights are rounded as they are loaded
    "enable_prefix_caching": (bool,),  # keep the KV cache of prompts' beginnings between requests
    "engine_worker_queue_port": (int,),  # a port of its own for each FastDeploy on a machine
}
OPTIONS = tuple(_TYPES)


def check_options(options: Mapping[str, object]) -> dict[str, object]:
    """A copy of the options. Raises UserError for a name that is not in `OPTIONS`, or a value of another type."""
    for name, value in options.items():
        if name not in _TYPES:
            nearest = difflib.get_close_matches(str(name), OPTIONS, n=1, cutoff=0.0)[0]
            raise UserError(
                f"unknown FastDeploy option {name!r}: did you mean {nearest!r}? There are {', '.join(OPTIONS)}."
            )
        types = _TYPES[name]
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise UserError(f"FastDeploy option {name!r} is {value!r}: it must be of type {types[0].__name__}.")
        if not isinstance(value, str) and not isinstance(value, bool) and not value > 0:
            raise UserError(f"FastDeploy option {name!r} is {value!r}: it must be above 0.")
    return dict(options)
