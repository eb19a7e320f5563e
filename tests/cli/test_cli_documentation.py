"""The documents say what the command line is: every command, every option, and examples that print what they say."""

import re
from pathlib import Path

import click
import pytest
from readme import GUIDE, README, examples, matches, terminal_of

from gossiplog.cli.app import COMMANDS, root

SHARED = {"--help", "--json", "--table"}
"""Documented once, for all commands."""


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


def section(path: str) -> str:
    """The guide's text under the heading of a command, or of the group that it belongs to."""
    heading = f"## `gossiplog {path.split(' ')[0]}`\n"
    text = GUIDE.read_text()
    assert heading in text, f"the guide has no heading {heading!r}"
    return re.split(r"^##", text.partition(heading)[2], maxsplit=1, flags=re.MULTILINE)[0]


@pytest.mark.parametrize("path", commands())
def test_command_is_documented_with_every_option(path: str) -> None:
    text = section(path)
    if " " in path:
        assert f"`gossiplog {path}" in text, f"the guide does not name `gossiplog {path}`"
    for parameter in commands()[path].params:
        if isinstance(parameter, click.Option):
            names = set(parameter.opts) | set(parameter.secondary_opts)
            assert names & SHARED or any(re.search(rf"`[^`]*{re.escape(name)}\b", text) for name in names), (
                f"{path}: {sorted(names)} is not in the guide"
            )


def test_options_of_all_commands_are_documented_once() -> None:
    text = GUIDE.read_text()
    assert all(f"`{name}`" in text for name in SHARED)
    assert "GOSSIPLOG_KEY_DIR" in text
    assert "GOSSIPLOG_KEY_FILE" in text
    assert "NO_COLOR" in text
    assert "130" in text


@pytest.mark.parametrize("path", [path for path in commands() if path.split(" ")[0] != "sim"])
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
