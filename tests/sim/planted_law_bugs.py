"""Bugs against the law of applications, planted as those of `planted_bugs`.

`python tests/sim/planted_law_bugs.py [SEEDS]` looks for the first seed that catches each, and prints the list.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from planted_bugs import PlantedBug, around, instead, look

from gossiplog.entry.message_id import decode_id
from gossiplog.entry.validation import Outcome, Rule, Verdict
from gossiplog.log import applying as applying_module
from gossiplog.log.applying import ApplyFailure
from gossiplog.log.commit import _Batch
from gossiplog.log.membership import Membership
from gossiplog.log.past import Past, find_entry
from gossiplog.log.requests import Quarantined, WriteQuarantine
from gossiplog.plan import Plan, ask
from gossiplog.replica.applications import Applications


def quarantine_failures(apply_entries: Any) -> Any:
    def broken(application: Any, entries: Any, applying: Any, now: float, new: Any) -> Plan[list[ApplyFailure]]:
        failures: list[ApplyFailure] = yield from apply_entries(application, entries, applying, now, new)
        aside = [Quarantined(failure.entry.key, failure.entry.value, "apply", str(failure.error), now) for failure in failures]
        yield from ask(WriteQuarantine(aside, []))
        return failures

    return broken


def drop_descendants(isolate: Any) -> Any:
    def broken(entries: Any) -> Any:
        failures: list[ApplyFailure] = yield from isolate(entries)
        keys = {failure.entry.key for failure in failures}
        for entry in entries:
            if entry.key not in keys and not keys.isdisjoint(entry.parent_keys):
                keys.add(entry.key)
                failures.append(ApplyFailure(entry, ValueError("its parent was set aside")))
        return failures

    return broken


def give_up_at_the_first(isolate: Any) -> Any:
    def broken(entries: Any) -> Any:
        attempts = isolate(entries)
        error = yield next(attempts)
        attempts.close()
        return [] if error is None else [ApplyFailure(entry, error) for entry in entries]

    return broken


def refuse_what_apply_refuses(apply_commit: Any) -> Any:
    def broken(self: Any, committed: Any, known: Any, own: Any) -> Any:
        return apply_commit(self, committed, known, set(committed.owners.values()))

    return broken


def keep_what_is_void(finish: Any) -> Any:
    def broken(self: Any, new: Any) -> Plan[Any]:
        changed = yield from finish(self, new)
        changed.lost = []
        return changed

    return broken


def spare_what_is_here(find_outside: Any) -> Any:
    def broken(self: Any, revocation: Any, new: Any) -> Plan[list[bytes]]:
        yield from ()
        return []

    return broken


def reject_what_is_refused(judge: Any) -> Any:
    def broken(self: Any, entry: Any, is_retry: bool) -> Plan[Verdict]:
        verdict: Verdict = yield from judge(self, entry, is_retry)
        return verdict if verdict.rule != Rule.ACCESS else Verdict(Outcome.REJECT, verdict.rule, verdict.reason, entry)

    return broken


def store_what_is_refused(find_refusal: Any) -> Any:
    def broken(self: Any, entry: Any, missing: Any) -> Plan[str | None]:
        reason: str | None = yield from find_refusal(self, entry, missing)
        return reason if missing else None

    return broken


def ask_the_whole_log(self: Any, id: str) -> Any:
    return self._run(find_entry(decode_id(id), self._new))


LAW_BUGS: Sequence[PlantedBug] = (
    PlantedBug(
        2, "apply decides membership", "what it raises about is not stored", around(Applications, "apply_commit", refuse_what_apply_refuses)
    ),
    PlantedBug(
        2,
        "apply quarantines",
        "what it raises about is set aside by the rules of a repair",
        around(applying_module, "apply_entries", quarantine_failures),
    ),
    PlantedBug(2, "descendants are dropped", "with what was set aside", around(applying_module, "isolate", drop_descendants)),
    PlantedBug(2, "batches are set aside", "for one entry in them", around(applying_module, "isolate", give_up_at_the_first)),
    PlantedBug(6, "refusals are offences", "IGNORE counts as REJECT", around(_Batch, "_judge", reject_what_is_refused)),
    PlantedBug(6, "refusals are for show", "what is refused is stored", around(_Batch, "_find_refusal", store_what_is_refused)),
    PlantedBug(6, "the past is the whole log", "the answer depends on the order of arrival", instead(Past, "get", ask_the_whole_log)),
    PlantedBug(44, "the void has effects", "what was applied before it became void stays", around(Membership, "finish", keep_what_is_void)),
    PlantedBug(44, "removals spare what is here", "arrival decides what is void", around(Membership, "_find_outside", spare_what_is_here)),
)
"""A `seed` below 300 catches each."""


if __name__ == "__main__":
    look(LAW_BUGS)
