"""Errors say what to do about them, in tracebacks too."""

import pickle
import traceback

from gossiplog.errors import DamagedLog, GossipLogError, LocalProtocolError


def shown(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def test_hint_is_shown_by_tracebacks() -> None:
    assert shown(LocalProtocolError("no", hint="do this")).splitlines()[-1] == "hint: do this"
    assert "hint" not in shown(LocalProtocolError("no"))


def test_default_hint_of_a_class_is_shown_as_well() -> None:
    assert DamagedLog("bad").hint == DamagedLog.hint_default
    assert shown(DamagedLog("bad")).count("hint: run `gossiplog fsck`") == 1
    assert DamagedLog("bad", hint="another").__notes__ == ["hint: another"]


def test_hint_that_is_replaced_is_shown_once_beside_other_notes() -> None:
    error = GossipLogError("no", hint="first")
    error.add_note("seen on a Monday")
    error.hint = "second"
    assert sorted(error.__notes__) == ["hint: second", "seen on a Monday"]
    error.hint = None
    assert error.__notes__ == ["seen on a Monday"]


def test_hint_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(LocalProtocolError("no", hint="do this")))
    assert (str(error), error.hint, error.__notes__) == ("no", "do this", ["hint: do this"])
