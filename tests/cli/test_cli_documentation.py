"""The guide has every command, `--help` every option, and examples print what they say."""

from pathlib import Path

import click
import pytest
from readme import GUIDE, README, examples, matches, terminal_of

from gossiplog.cli.app import COMMANDS, root


def commands() -> dict[str, click.Command]:
    """Every command with its path, `key new` say."""
    found: dict[str, click.Command] = {}
    waiting: list[tuple[str, click.Command | None]] = [(name, root.get_command(click.Context(root), name)) for name in COMMANDS]
    while waiting:
        path, command = waiting.pop(0)
        assert command is not None
        found[path] = command
        if isinstance(command, click.Group):
            waiting += [(f"{path} {name}", each) for name, each in command.commands.items()]
    return found


@pytest.mark.parametrize("path", commands())
def test_command_is_in_the_guide(path: str) -> None:
    text = GUIDE.read_text()
    assert f"\n### `gossiplog {path}`\n" in text if " " not in path else f"`gossiplog {path}" in text


def test_what_all_commands_share_is_in_the_guide() -> None:
    text = GUIDE.read_text()
    assert all(f"`{name}`" in text for name in ("--help", "--json", "--table", "-q", "GOSSIPLOG_KEY_DIR", "GOSSIPLOG_KEY_FILE", "NO_COLOR"))
    assert "130" in text


@pytest.mark.parametrize("path", commands())
def test_help_of_every_command_explains_and_shows_an_example(path: str) -> None:
    command = commands()[path]
    assert command.help
    assert "Example" in command.help
    assert f"gossiplog {path}" in command.help
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{path}: {parameter.opts} has no help"
    summary = command.help.split("\n\n")[0].strip()
    assert len(summary) <= 66, summary
    assert summary.endswith(".")


@pytest.mark.parametrize("path", ["", *commands()])
def test_help_of_every_command_fits_80_columns(path: str) -> None:
    command = commands()[path] if path else root
    above = click.Context(root, **root.context_settings)
    text = command.get_help(click.Context(command, info_name=f"gossiplog {path}", parent=above, terminal_width=80))
    assert [line for line in text.splitlines() if len(line) > 80] == []


def test_examples_of_readme_print_what_they_say(tmp_path: Path, warm_folder: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    found = examples(README.read_text()) + examples(GUIDE.read_text())
    assert len(found) > 20
    run = terminal_of(folder, warm_folder)
    for example in found:
        actual = run(example.command)
        assert "Traceback" not in "\n".join(actual)
        assert matches(example.expected, actual), (
            f"$ {example.command}\n" + "\n".join(actual) + "\n--- README says\n" + "\n".join(example.expected)
        )
