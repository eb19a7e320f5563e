"""Somebody who follows the protocol and does not have the log's access rule: what others refuse it stores, builds on and passes on."""

from __future__ import annotations

import random
from collections.abc import Sequence

from ...codec import pcf_encode
from ...entry.message import Entry
from ...entry.message_id import KEY_BYTES, encode_id
from ...entry.rules import next_clock
from ...entry.signing import sign_entry
from .log_on_disk import TOPIC
from .replica import Replica

__all__ = ["Stranger", "append_answer"]

PERIOD_S = 0.8
ANSWERS_SHARE = 0.7


class Stranger(Replica):
    """Nobody may blame it, for it cannot know better. Its first entries follow the rule, as it happens.

    Attributes:
        until_s: When it writes its last entry.
    """

    until_s = 0.0

    def start(self) -> None:
        """Start, and begin to write."""
        super().start()
        self._whim = random.Random(f"stranger {self._seed} {self.spec.number}")
        self._lawful_s = self.until_s * (0.2 + 0.6 * self._whim.random())
        self.world.after(PERIOD_S, self._write)

    def _write(self) -> None:
        if self.world.now > self.until_s:
            return
        self.world.after(PERIOD_S * (0.5 + self._whim.random()), self._write)
        if self.world.now < self._lawful_s:
            append_answer(self, self._whim)
        elif self._whim.random() < ANSWERS_SHARE:
            self._append_unheard()
        else:
            self._refer_ahead()

    def _append_unheard(self) -> None:
        """Refer to what does not exist."""
        self.append([pcf_encode.encode({"re": encode_id(b"\1" + self._whim.randbytes(KEY_BYTES - 1))})])

    def _refer_ahead(self) -> None:
        """Refer to what all others have, and what is not in the entry's own past."""
        keys = sorted(Entry.stored(value).key for value in self.state.values)
        if len(keys) < 2:
            return
        low, high = sorted(self._whim.sample(range(len(keys)), 2))
        payload = pcf_encode.encode({"re": encode_id(keys[high])})
        entry = sign_entry(self.signer, TOPIC, next_clock([keys[low]]), [keys[low]], payload)
        self._observer.on_signed(self, [entry])
        self.log.insert([entry], lambda _: None)


def append_answer(writer: Replica, rng: random.Random, *, is_poison: bool = False) -> None:
    """Append an entry that refers to one of the log's, which is in its past as long as the log has few heads."""
    values: Sequence[bytes] = writer.state.values
    payload: dict[str, bool | str] = {"poison": True} if is_poison else {}
    if values:
        payload["re"] = Entry.stored(rng.choice(values)).id
    if writer.is_up:
        writer.append([pcf_encode.encode(payload)])
