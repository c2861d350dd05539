"""Opening checkpoint folders: what works, and one sentence for each way in which a folder can be wrong."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import paddle
import pytest
from safetensors.numpy import load_file, save_file
from support.judged_groups import judge_over
from support.tiny_policy import write_tiny_checkpoint

from grrm.engine.api import Completion, SamplingParams
from grrm.engine.open import open_generator, open_model, open_servers
from grrm.engine.paddle.engine import PaddleEngine
from grrm.errors import UserError
from grrm.gqm.chat import render_chatml
from grrm.gqm.groups import Status, TranslationTask
from grrm.inference.rank import group_of
from grrm.inference.translate import TranslateSettings, translate_prompts
from grrm.judges.gqm import GQMOptions
from grrm.models import cpu_kernels
from grrm.models.checkpoint import load_causal_lm, missing_parameters, stored_dtype
from grrm_reward_server.hosting import build_hosted_judge
from grrm_reward_server.settings import Settings


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("checkpoint") / "tiny")


@pytest.fixture
def checkpoint(original, tmp_path) -> Path:
    """A copy to be damaged."""
    return Path(shutil.copytree(original, tmp_path / "checkpoint"))


def edit_json(path: Path, **values: object) -> None:
    content = json.loads(path.read_text()) | values
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


def test_an_opened_checkpoint_answers_in_its_own_template(original):
    opened = open_generator(original, chat_template="checkpoint")
    assert opened.render("Hallo") == render_chatml("Hallo")
    assert opened.max_prompt_tokens == 1023
    too_long = opened.render("a" * 1023)
    with pytest.raises(UserError, match="no room"):
        opened.generator.generate_text([too_long], temperature=1.0, max_new_tokens=1)
    prompts = [opened.render("Hallo"), opened.render("Guten Morgen")]
    first = opened.generator.generate_text(prompts, temperature=1.0, max_new_tokens=6, seeds=[1, 2])
    again = opened.generator.generate_text(prompts[1:], temperature=1.0, max_new_tokens=6, seeds=[2])
    assert first[1] == again[0]
    assert all(reply.n_tokens <= 6 for reply in first)


def test_replies_keep_the_spaces_that_the_model_wrote(original, monkeypatch):
    """PaddleNLP's own way to decode takes those before . , ? and ! out: `Bonjour!` is no French."""
    text = "Bonjour ! Ça va , n't it 's ? B : 3 ."
    opened = open_model(original)
    ids = opened.encode(text)
    assert opened.tokenizer.decode(ids) != text
    assert opened.decode(ids) == opened.decode_all(ids) == text
    completion = Completion(ids, [], "stop", top_logprobs=[[(token, -0.1)] for token in ids])
    monkeypatch.setattr(PaddleEngine, "_generate", lambda self, requests, on_finished: [completion])
    (reply,) = opened.alone().generator.generate_text(["x"], temperature=0.0, max_new_tokens=99, top_logprobs=1)
    assert reply.text == text
    assert "".join(token.choices[0][0] for token in reply.tokens).startswith("Bonjour !")


@pytest.mark.parametrize(("template", "rendered"), [("chatml", render_chatml("Hallo")), ("none", "Hallo")])
def test_templates_that_need_no_tokenizer(template, rendered):
    assert open_servers(["http://127.0.0.1:1"], chat_template=template).render("Hallo") == rendered


def test_a_template_of_the_checkpoints_own_is_used_as_it_is(checkpoint):
    template = "{% for message in messages %}[{{ message['content'] }}]{% endfor %}"
    edit_json(checkpoint / "tokenizer_config.json", chat_template=template)
    assert open_generator(checkpoint, chat_template="checkpoint").render("Hallo <b>") == "[Hallo <b>]"


def missing_folder(folder: Path) -> None:
    shutil.rmtree(folder)


def file_instead(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("model")


def no_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def other_architecture(folder: Path) -> None:
    edit_json(folder / "config.json", model_type="gpt2", architectures=["GPT2LMHeadModel"])


def no_architecture(folder: Path) -> None:
    edit_json(folder / "config.json", model_type=None)


def no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def truncated(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])


def shard_missing(folder: Path) -> None:
    index = {"metadata": {}, "weight_map": {"a": "model.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def index_broken(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text("[]")


def tensor_missing(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    del tensors["qwen2.layers.0.mlp.up_proj.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "np"})


def wrong_shape(folder: Path) -> None:
    edit_json(folder / "config.json", intermediate_size=64)


def reward_model(folder: Path) -> None:
    (folder / "reward_model.json").write_text('{"kind": "ranker"}')


def no_tokenizer(folder: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        (folder / name).unlink()


def tokenizer_broken(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{")


def no_template(folder: Path) -> None:
    edit_json(folder / "tokenizer_config.json", chat_template=None)


def template_broken(folder: Path) -> None:
    edit_json(folder / "tokenizer_config.json", chat_template="{{ messages[0]['content'] + 1 }}")


def template_without_text(folder: Path) -> None:
    edit_json(folder / "tokenizer_config.json", chat_template="assistant:")


def small_vocabulary(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    for name in ("qwen2.embed_tokens.weight", "lm_head.weight"):
        tensors[name] = tensors[name][:200]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "np"})
    edit_json(folder / "config.json", vocab_size=200)


DAMAGES = {
    missing_folder: "does not exist: give the folder of a model",
    file_instead: "is not a folder",
    no_config: "has no config.json",
    other_architecture: "is of architecture 'gpt2', which cannot be opened here: give a checkpoint of qwen2 or llama",
    no_architecture: "is of architecture None",
    no_weights: "has no weights (*.safetensors)",
    truncated: "its weights are damaged, get them again",
    shard_missing: "lacks 1 of 2 files of weights, first model-00002-of-00002.safetensors",
    index_broken: "is not a readable index of weights",
    tensor_missing: "lack layers.0.mlp.up_proj.weight: they are not whole",
    wrong_shape: "do not fit its config.json",
    reward_model: "holds a reward model, which writes no text: give the folder of a policy",
    no_tokenizer: "has no tokenizer that can be read",
    tokenizer_broken: "has no tokenizer that can be read",
    no_template: "has no chat template: add chat_template to its tokenizer_config.json",
    template_broken: "cannot be rendered",
    template_without_text: "leaves out the user's text",
    small_vocabulary: "tokens but the model only 200",
}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_folder_that_cannot_be_opened_is_one_sentence_that_names_it(checkpoint, damage):
    damage(checkpoint)
    with pytest.raises(UserError) as caught:
        open_generator(checkpoint, chat_template="checkpoint")
    assert DAMAGES[damage] in str(caught.value)
    assert str(checkpoint) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_checkpoint_without_template_opens_where_none_is_asked_for(checkpoint):
    no_template(checkpoint)
    assert open_generator(checkpoint).render("Hallo") == render_chatml("Hallo")


def test_a_model_with_a_head_of_its_own_needs_it(tmp_path):
    folder = write_tiny_checkpoint(tmp_path / "untied", tie=False)
    tensors = load_file(folder / "model.safetensors")
    del tensors["lm_head.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "np"})
    with pytest.raises(UserError, match=r"lack lm_head\.weight"):
        load_causal_lm(folder, "float32")


def test_names_of_both_libraries_and_fused_projections_are_the_same_parameters():
    needed = ["qwen2.layers.0.self_attn.q_proj.bias", "qwen2.layers.0.mlp.gate_up_fused_proj.weight", "lm_head.weight"]
    stored = [
        "model.layers.0.self_attn.qkv_proj.bias",
        "model.layers.0.mlp.gate_proj.weight",
        "model.layers.0.mlp.up_proj.weight",
    ]
    assert missing_parameters(needed, stored, has_tied_head=True) == []
    assert missing_parameters(needed, stored[:2], has_tied_head=False) == [
        "layers.0.mlp.up_proj.weight",
        "lm_head.weight",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": None}, "no model is named"),
        (
            {"model": "x", "tokenizer_path": "y", "attempts": 2},
            "tokenizer_path has no effect, as the model is",
        ),
        ({"model": "x", "dtype": "bfloat"}, "unknown dtype 'bfloat': did you mean 'bfloat16'"),
        ({"model": None, "urls": ["http://h:1"], "chat_template": "checkpoint"}, "needs the folder of its tokenizer"),
        ({"model": None, "urls": ["http://h:1"], "chat_template": "jinja"}, "unknown chat template 'jinja'"),
        ({"model": None, "urls": ["http://h:1"], "tokenizer_path": "nowhere"}, "'nowhere' does not exist"),
        ({"model": None, "urls": "http://h:1"}, "each generation server is named in a list"),
    ],
)
def test_requests_that_make_no_sense_are_one_sentence(arguments, message):
    with pytest.raises(UserError, match=message):
        open_generator(arguments.pop("model"), **arguments)


@pytest.mark.parametrize(
    ("config", "dtype"),
    [
        ({"torch_dtype": "bfloat16"}, "bfloat16"),
        ({"dtype": "float32", "torch_dtype": "bfloat16"}, "float32"),
        ({"dtype": "float16"}, "bfloat16"),
        ({}, "float32"),
    ],
)
def test_the_type_of_a_checkpoint_is_what_its_config_names(config, dtype):
    assert stored_dtype(config) == dtype


def test_without_a_dtype_a_checkpoint_in_half_precision_is_float32_on_a_cpu(original, tmp_path):
    folder = shutil.copytree(original, tmp_path / "half")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "dtype": "bfloat16"}))
    engine = open_model(folder).engine
    assert {parameter.dtype for parameter in engine.model.parameters()} == {paddle.float32}


@pytest.mark.skipif(not cpu_kernels.available(), reason="there is no C++ compiler here")
def test_bfloat16_on_a_cpu_rounds_products_and_leaves_weights_alone(original):
    engine = open_model(original, dtype="bfloat16").engine
    assert {parameter.dtype for parameter in engine.model.parameters()} == {paddle.float32}
    prompts, params = [[5, 6, 7]], SamplingParams(max_new_tokens=1, temperature=0)
    rounded = engine.generate(prompts, params)[0]
    exact = PaddleEngine(engine.model).generate(prompts, params)[0]
    assert 0 < abs(rounded.logprobs[0] - exact.logprobs[0]) < 0.1


def test_bfloat16_on_a_cpu_without_kernels_is_one_sentence_before_weights_are_read(original, monkeypatch):
    monkeypatch.setattr(cpu_kernels, "available", lambda: False)
    monkeypatch.setattr("grrm.models.checkpoint.load_causal_lm", lambda *_: pytest.fail("weights were read"))
    with pytest.raises(UserError, match=r"dtype bfloat16 needs the C\+\+ kernels on a CPU.*use float32"):
        open_generator(original, dtype="bfloat16")


def test_a_llama_policy_can_be_ranked_translated_with_and_hosted(tmp_path):
    folder = write_tiny_checkpoint(tmp_path / "llama", architecture="llama")
    opened = open_generator(folder)
    judge = judge_over(opened.generator, GQMOptions(max_new_tokens=4, retries=0), render=opened.render)
    group = group_of(0, TranslationTask("Guten Morgen", "de", "en"), ["Good morning", "Bye"])
    (verdict,) = judge.judge([group])
    assert (verdict.attempts, verdict.statuses) == (1, (Status.JUDGE_UNPARSABLE,) * 2)
    (drawn,) = translate_prompts(opened, ["Guten Morgen"], TranslateSettings(max_new_tokens=4, retry=0))
    assert drawn[0].raw_output is not None
    options = {"max_new_tokens": 4, "retries": 0}
    hosted = build_hosted_judge(Settings(judge="gqm", model=str(folder), judge_options=options))
    assert hosted.judge.judge([group])[0].statuses == verdict.statuses
