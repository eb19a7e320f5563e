"""Validation of entries: all rules that VALUE alone decides, and the order of all.

| rule | verdict | the entry passes if |
|---|---|---|
| size | [IGNORE] | VALUE has at most 4,194,294 bytes, which fill a frame, and 16,384 parents |
| nesting | [IGNORE] | its payload has at most 1,024 levels of arrays and maps |
| canonical | [REJECT] | VALUE is dag-cbor as the reference reads it, to its last byte |
| portable | [IGNORE] | it is in PCF, so that every version of the reference writes it as it came; the parents' keys ascend |
| shape | [REJECT] | `[[codec, did, signature], topic, clock, [keys of 20 bytes], payload]` |
| topic | [REJECT] | the topic is well formed, and the log's own |
| clock | [REJECT] | one more than the highest of the parents' clocks, and each of those is well formed |
| key | [REJECT] | the key that it was sent under is its own |
| scheme | [IGNORE] | the signature's codec is known, and the log accepts the did's scheme |
| signature | [REJECT] | the signature is valid |
| parents | [IGNORE] | all parents are here; if not, sync with the sender |
| access | [IGNORE] | the log's access rule lets the did write it, given its ancestors |
| quarantined | [IGNORE] | no repair has quarantined it |
| storage | [IGNORE] | it could be stored; if not, the fault is ours |
| unwelcome | [IGNORE] | the server accepts this writer's entries from clients, within its total limits |
| quota | [IGNORE] | the writer is within its quota per minute; if not, the entry is fetched again later |

The rules are checked in this order, and the verdict names the first that fails. Only servers have the last two, which are checked after the
signature, and also before it for writers that were just refused by them. `validate` does not check the last six. REJECT blames the sender.
IGNORE does not: an entry beyond our limits, or signed in an unknown way, may be good elsewhere, and its sender honest.

Source: docs/spec/entries.md, "Acceptance: three verdicts"; docs/spec/limits.md, "honest but unwelcome";
the labels are those of the Ethereum p2p specification.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import compress, pairwise
from typing import NamedTuple, TypeAlias

from ..errors import DecodeError
from .envelope import Envelope, parse_envelope, signature_and_signed_bytes
from .message import Entry
from .rules import VALUE_BYTES_LIMIT, InvalidEntry
from .rules import Rule as Rule
from .schemes import CODECS, ED25519, SignatureScheme, accepted_schemes, extra_of, is_codec, is_ours, scheme_of

VerifyApart: TypeAlias = "Callable[[Sequence[tuple[bytes, bytes]]], bytes | None]"
"""Verifies Ed25519 signatures elsewhere, such as in another process. It gets the public key, and the signature with the signed bytes, of
each. It returns a byte for each, 1 if valid and 0 if it is to be verified here; None if all are."""
_ERROR_CHARS_MAX = 120
UNSUPPORTED = frozenset({Rule.SIZE, Rule.NESTING, Rule.PORTABLE, Rule.SCHEME, Rule.UNWELCOME})
"""Rules that an entry may break here and yet be good elsewhere."""
LATER = frozenset({Rule.STORAGE, Rule.QUOTA})
"""Rules that a good entry may break for now; it has to come again."""


class Outcome(Enum):
    """The fate of an entry that was offered."""

    ACCEPT = "accept"
    IGNORE = "ignore"
    REJECT = "reject"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision about one entry, and the reason.

    Attributes:
        rule: The first rule that failed; None when accepted.
        reason: How it failed, in a few words; None when accepted.
        entry: The entry; None when VALUE is malformed.
        is_new: Whether the log did not have it before; always False from `validate`.
    """

    outcome: Outcome
    rule: str | None = None
    reason: str | None = None
    entry: Entry | None = None
    is_new: bool = False

    @property
    def accepted(self) -> bool:
        """Whether the outcome is ACCEPT."""
        return self.outcome is Outcome.ACCEPT


def validate(
    value: bytes,
    *,
    topic: str | None = None,
    key: bytes | None = None,
    schemes: Collection[str] | None = None,
    value_bytes_max: int = VALUE_BYTES_LIMIT,
) -> Verdict:
    """Validate one VALUE, without a log. Pure; may run on any thread, and releases the interpreter's lock for the signature.

    About 12 µs on top of the signature's verification for a VALUE of 400 bytes. Never raises, whatever the bytes.

    Args:
        topic: The log's topic; None accepts any well-formed one.
        key: The 20 bytes that VALUE was sent under; None if it was sent without a key.
        schemes: The names of the signature schemes that the log accepts; by default those of `accepted_schemes`.
        value_bytes_max: The largest VALUE to accept, at most `VALUE_BYTES_LIMIT`; a higher number means that limit.
    """
    examined = _examine(value, topic, key, accepted_schemes() if schemes is None else schemes, value_bytes_max)
    return examined if isinstance(examined, Verdict) else _verify(examined)


def validate_many(
    values: Iterable[bytes],
    *,
    topic: str | None = None,
    schemes: Collection[str] | None = None,
    value_bytes_max: int = VALUE_BYTES_LIMIT,
    verify_apart: VerifyApart | None = None,
) -> list[Verdict]:
    """Validate several VALUEs and return their verdicts in order; meant for worker threads. Arguments as for `validate`.

    All signatures are verified last, one right after the other. Verifying releases the interpreter's lock, and the less Python runs in
    between, the less two threads wait for the lock (8 % of the CPU time of two).

    Args:
        verify_apart: Verifies Ed25519 signatures elsewhere; None verifies all here.
    """
    accepted = accepted_schemes() if schemes is None else schemes
    examined = [_examine(value, topic, None, accepted, value_bytes_max) for value in values]
    claims = [each for each in examined if isinstance(each, _Claim) and each.verify_signed is ED25519.verify_signed]
    known = None if verify_apart is None else verify_apart([(claim.public_key, claim.signed) for claim in claims])
    valid = set(compress(map(id, claims), known or b""))
    return [each if isinstance(each, Verdict) else _accept(each) if id(each) in valid else _verify(each) for each in examined]


def judge(
    value: bytes,
    key: bytes | None = None,
    *,
    topic: str | None = None,
    schemes: Collection[str] | None = None,
    value_bytes_max: int = VALUE_BYTES_LIMIT,
) -> Verdict:
    """Validate a VALUE that a store, an archive or a table holds, under a key or under none. Arguments as for `validate`.

    If the bytes hash to another key, they were changed, and the verdict says so, whatever other rule they break.
    """
    verdict = kept(validate(value, topic=topic, schemes=schemes, value_bytes_max=value_bytes_max))
    entry = verdict.entry
    if key is None or entry is None or entry.key == key:
        return verdict
    return Verdict(Outcome.REJECT, Rule.KEY, f"its bytes were changed: they hash to {entry.id}", entry)


def kept(verdict: Verdict) -> Verdict:
    """Return the verdict on an entry that a log holds: one whose parents do not ascend is accepted, as it may be older than that rule."""
    if verdict.rule == Rule.PORTABLE and verdict.entry is not None:
        return Verdict(Outcome.ACCEPT, entry=verdict.entry)
    return verdict


class _Claim(NamedTuple):
    """An entry that passed every check before the signature."""

    entry: Entry
    verify_signed: Callable[[bytes, bytes], bool | None]
    public_key: bytes
    signed: bytes


def _examine(value: bytes, topic: str | None, key: bytes | None, schemes: Collection[str], value_bytes_max: int) -> Verdict | _Claim:
    """Apply all rules before the signature."""
    entry = None
    if type(value) is not bytes:
        value = bytes(value)
    try:
        envelope = parse_envelope(value, value_bytes_max)
        entry = Entry.from_envelope(value, envelope)
        if topic is not None and envelope.topic != topic:
            raise InvalidEntry(Rule.TOPIC, f"topic {envelope.topic!r}, expected {topic!r}")
        if key is not None and entry.key != key:
            raise InvalidEntry(Rule.KEY, f"key {key.hex()}, expected {entry.key.hex()}")
        scheme, public_key = _find_scheme(envelope, schemes)
        return _Claim(entry, scheme.verify_signed, public_key, signature_and_signed_bytes(value, envelope))
    except InvalidEntry as refusal:
        outcome = Outcome.IGNORE if refusal.rule in UNSUPPORTED else Outcome.REJECT
        return Verdict(outcome, refusal.rule, refusal.reason, entry)
    except Exception as error:  # a fault of ours with one entry must not affect its neighbours
        return _unverified(error, entry)


def _accept(claim: _Claim) -> Verdict:
    """Accept a signed entry, unless its parents do not ascend: [IGNORE] portable.

    Version 0.16.1 of the reference accepts only strictly ascending parents, and no version's append makes others.
    """
    keys = claim.entry.parent_keys
    if len(keys) > 1 and any(one >= other for one, other in pairwise(keys)):
        return Verdict(Outcome.IGNORE, Rule.PORTABLE, "the parents' keys do not ascend, or repeat", claim.entry)
    return Verdict(Outcome.ACCEPT, None, None, claim.entry)


def _verify(claim: _Claim) -> Verdict:
    """Check the signature: [REJECT] signature, or [IGNORE] scheme if the scheme cannot decide."""
    entry, verify_signed, public_key, signed = claim
    try:
        is_valid = verify_signed(public_key, signed)
    except Exception as error:  # a scheme may be foreign code, whose fault with one entry must not affect its neighbours
        return _unverified(error, entry)
    if is_valid:
        return _accept(claim)
    if is_valid is None:
        return Verdict(Outcome.IGNORE, Rule.SCHEME, f"a payload that codec {entry.signature.codec} does not sign", entry)
    return Verdict(Outcome.REJECT, Rule.SIGNATURE, "it does not verify", entry)


def _unverified(error: Exception, entry: Entry | None) -> Verdict:
    """Ignore an entry on which our own code or a scheme's raised an unexpected error: [IGNORE] scheme."""
    reason = f"it could not be verified: {type(error).__name__}: {str(error)[:_ERROR_CHARS_MAX]}"
    return Verdict(Outcome.IGNORE, Rule.SCHEME, reason, entry)


def _find_scheme(envelope: Envelope, schemes: Collection[str]) -> tuple[SignatureScheme, bytes]:
    """Find the scheme and the public key, or raise: [IGNORE] scheme, or [REJECT] signature for the wrong length."""
    if not is_codec(envelope.codec):
        raise InvalidEntry(Rule.SCHEME, _unsupported(envelope.codec, schemes))
    try:
        scheme, public_key = scheme_of(envelope.did, envelope.codec)
    except DecodeError as error:
        raise InvalidEntry(Rule.SCHEME, str(error)) from None
    if scheme.name not in schemes:
        raise InvalidEntry(Rule.SCHEME, f"signature scheme {scheme.name} is not accepted here{_how_to_accept(scheme.name)}")
    if len(envelope.signature) != scheme.signature_bytes:
        # A scheme's own codec may have other forms of signatures.
        rule = Rule.SIGNATURE if envelope.codec in CODECS else Rule.SCHEME
        raise InvalidEntry(rule, f"{len(envelope.signature)} bytes, expected {scheme.signature_bytes}")
    return scheme, public_key


def _unsupported(codec: str, schemes: Collection[str]) -> str:
    extra = extra_of(codec)
    if extra is None:
        return f"codec {codec[:32]!r} is not supported"
    scheme, package = extra
    if scheme not in schemes:
        return f"codec {codec} is of signature scheme {scheme}, which is not accepted here{_how_to_accept(scheme)}"
    return f"codec {codec} needs the extra gossiplog[{package}], which is not installed"


def _how_to_accept(scheme: str) -> str:
    """Name the environment variable, for a scheme that this package provides; others are the application's to accept."""
    return f" (GOSSIPLOG_SCHEMES={scheme}, or `schemes` of gossiplog.open, accepts it)" if is_ours(scheme) else ""
