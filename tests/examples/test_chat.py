"""The example `examples/chat`, typed into and read on two terminals, each a process of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from example_support import EXAMPLES, poison_like, running_hub, stranger
from terminal import Terminal
from terminal_picture import terminal_picture

from gossiplog import blocking

CHAT = str(EXAMPLES / "chat" / "chat.py")
TOPIC = "chat.example.com"
SWITCH, QUIT = "\x0f", "\x11"
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("warm_gossiplog")]


def test_two_talk_in_rooms_and_what_was_said_offline_is_merged(tmp_path: Path) -> None:
    with (
        running_hub(tmp_path, TOPIC) as url,
        Terminal(CHAT, "ann.db", "--name", "Ann", "--connect", url, folder=tmp_path) as ann,
        Terminal(CHAT, "bob.db", "--name", "Bob", "--connect", url, folder=tmp_path) as bob,
    ):
        for person in (ann, bob):
            person.wait("Ann·", "Bob·", "online")
        ann.type("who is bringing bread?")
        bob.wait(" …")
        ann.type("\r")
        bob.wait("who is bringing bread?", without=" …")

        for person in (ann, bob):
            person.type(SWITCH)
            person.wait("offline")
        ann.type("then I bring it\r")
        ann.wait("then I bring it")
        bob.type("I do\r")
        assert "then I bring it" not in bob.wait("I do")
        assert "I do" not in ann.text()
        for person in (ann, bob):
            person.type(SWITCH)
        seen = [person.wait("I do", "then I bring it") for person in (ann, bob)]
        # In one order for both.
        said = [re.findall(r"(?:Ann|Bob)·\w{4}  (.*)", text) for text in seen]
        assert len(said[0]) == 3
        assert said[0] == said[1]
        (tmp_path / "chat.svg").write_text(terminal_picture("What two people said while both were offline", seen[1], width=820))

        bob.type("/join kitchen\r")
        bob.wait("▸ kitchen", without="bread")
        bob.type("butter too\r")
        bob.wait("butter too")
        ann.wait("  kitchen", without="\n   Bob·")
        ann.type("/join kitchen\r")
        ann.wait("▸ kitchen", "butter too")

        bob.type(QUIT)
        assert bob.wait_ended() == 0
        ann.wait("butter too", without="\n   Bob·")
        ann.type(QUIT)
        assert ann.wait_ended() == 0


def test_nothing_that_a_stranger_writes_stops_it_or_gets_into_the_terminal(tmp_path: Path) -> None:
    with (
        running_hub(tmp_path, TOPIC) as url,
        Terminal(CHAT, "ann.db", "--name", "Ann", "--connect", url, folder=tmp_path) as ann,
        stranger(url, TOPIC) as log,
    ):
        ann.wait("Ann·", "online")
        ann.type("all is well\r")
        ann.wait("all is well")
        say = {"op": "say", "room": "cellar", "name": "Eve", "words": "nearly"}
        log.append_many(poison_like(say))
        there = {"room": "lobby", "name": "\x1b[2J", "typing": False}
        for here in (*({**there, name: value} for name in there for value in (7, ["Eve"], {}, "x" * 900)), {**there, "more": 1}):
            log.presence.set(here, ttl_s=60)
        ann.wait("\n   \ufffd[2J·")
        for words in ("[red]markup[/", "\x1b[2Jcleared\x1b]0;title\x07", "a\rb\nc", "\u202eright to left", "@click=app.quit"):
            log.append({**say, "room": "lobby", "words": words})
        log.append({**say, "room": "lobby", "words": "last of all"})
        ann.wait("last of all", "all is well", "[red]markup[/", "�[2Jcleared�]0;title�", "a�b�c", "�right to left")
        ann.type("still here\r")
        ann.wait("still here")
        ann.type(QUIT)
        assert ann.wait_ended() == 0
    with blocking.open(tmp_path / "ann.db") as kept:
        assert kept.fsck().is_clean
        assert list(kept.set_aside()) == []
        assert kept.count() > 80
