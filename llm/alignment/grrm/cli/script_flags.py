"""Options as the scripts of GRRM and EAX spell them, beside ours: `--min_margin 20 --to_percentile True`."""

from __future__ import annotations

from collections.abc import Mapping

import click

from grrm.cli.options import CommandGroup

# Names of an option there, for commands that have ours and not theirs.
_OTHER_NAMES = {
    "--mt-texts-key": "--mt-key",
    "--mt-text-key": "--mt-key",
    "--tokenizer-path": "--tokenizer",
    **dict.fromkeys(("--model-path", "--bleurt-path", "--rm-model-path"), "--model"),
    "--out-key": "--score-key",
    "--ref-text-key": "--anchor-key",
    "--output-path": "--out",
    "--use-chat-template": "--chat-template",
}
# Columns that a command without such an option reads.
_FIXED = {
    "--src-text-key": "src_text",
    "--src-lang-key": "src_lang",
    "--trg-lang-key": "trg_lang",
    "--ref-lang-key": "ref_lang",
    "--ref-key": "trg_text",
}
_OVERWRITE = "--force-overwrite"
_CHAT_TEMPLATES = {"True": [], "False": ["--chat-template", "none"]}  # True is our default
_ARGUMENTS = ("--data-path", "--output-path")  # the command's arguments, in this order


class ScriptCommand(click.Command):
    """A command that reads the command line of the script that it stands for.

    Underscores are hyphens, a flag may have True or False behind it, as --chat_template may, --data_path and
    --output_path are the arguments, and what is fixed here may be given if it is that.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the command line. Fails as click does."""
        options = {name: option for option in self.params for name in option.opts if name.startswith("--")}
        paths: dict[str, str] = {}
        rest, words = list[str](), list(args)
        while words and words[0] != "--":
            word = words.pop(0)
            written, equals, value = word.partition("=")
            name = _ours(written.replace("_", "-"), options)
            if not word.startswith("--") or name not in (*options, *_ARGUMENTS, *_FIXED, _OVERWRITE):
                rest.append(word)
                continue
            if name == _OVERWRITE or getattr(options.get(name), "is_flag", False):
                said = value if equals else words.pop(0) if words and words[0] in ("True", "False") else "True"
                if name == _OVERWRITE and said == "True":
                    raise click.UsageError(f"'{written}' is not here: remove the file or column to make it again.", ctx)
                rest += [name] if said == "True" else [] if said == "False" else [word]
                continue
            if not equals:
                if not words:
                    raise click.UsageError(f"Option '{written}' requires an argument.", ctx)
                value = words.pop(0)
            if name in options:
                rest += _CHAT_TEMPLATES.get(value, [name, value]) if name == "--chat-template" else [name, value]
            elif name in _ARGUMENTS:
                paths[name] = value
            elif value != _FIXED[name]:
                raise click.UsageError(
                    f"'{written}' is always {_FIXED[name]} here, not {value}: leave it out and rename the column.", ctx
                )
        data, out = ([paths[name]] if name in paths else [] for name in _ARGUMENTS)
        return super().parse_args(ctx, [*data, *rest, *words, *out])


def _ours(name: str, options: Mapping[str, object]) -> str:
    other = _OTHER_NAMES.get(name)
    return other if other in options and name not in options else name  # type: ignore[return-value]


class ScriptGroup(CommandGroup):
    """A group of such commands."""

    command_class = ScriptCommand
