"""What a package that is not installed looks like at every entry point."""

from __future__ import annotations

import pytest

from grrm.entry import run_main


@pytest.mark.parametrize(("package", "extra"), [("safetensors", "cpu"), ("flask", "server"), ("sacrebleu", "metrics")])
def test_a_package_of_an_extra_that_is_missing_is_one_sentence(package, extra, capsys):
    def main():
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)

    with pytest.raises(SystemExit) as caught:
        run_main(main)
    assert caught.value.code == 2
    words = capsys.readouterr().err
    assert words.startswith(f"error: the package {package} is not installed: run `pip install 'paddle-grrm[{extra}]'`")
    assert words.count("\n") == 1


def test_a_package_that_no_extra_installs_is_a_defect():
    def main():
        raise ModuleNotFoundError("No module named 'grrm.nowhere'", name="grrm.nowhere")

    with pytest.raises(ModuleNotFoundError):
        run_main(main)
