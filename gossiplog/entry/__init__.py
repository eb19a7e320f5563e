"""Entries: their messages, ids and signatures, and the validation of one VALUE by itself."""

from .envelope import Envelope, parse_envelope, signed_bytes
from .message import Entry, Message, Payload, Signature
from .message_id import ID_PATTERN, KEY_BYTES, clock_of, decode_id, encode_id, is_id, message_key
from .rules import PARENTS_MAX, VALUE_BYTES_DEFAULT, VALUE_BYTES_LIMIT, InvalidEntry, Rule, check_topic, is_topic, next_clock
from .schemes import DEFAULT_SCHEMES, SignatureScheme, accept_schemes, register_scheme, verify_signature
from .signing import Ed25519Signer, Signer, sign_entry
from .validation import Outcome, Verdict, validate, validate_many

__all__ = [
    "DEFAULT_SCHEMES",
    "ID_PATTERN",
    "KEY_BYTES",
    "PARENTS_MAX",
    "VALUE_BYTES_DEFAULT",
    "VALUE_BYTES_LIMIT",
    "Ed25519Signer",
    "Entry",
    "Envelope",
    "InvalidEntry",
    "Message",
    "Outcome",
    "Payload",
    "Rule",
    "Signature",
    "SignatureScheme",
    "Signer",
    "Verdict",
    "accept_schemes",
    "check_topic",
    "clock_of",
    "decode_id",
    "encode_id",
    "is_id",
    "is_topic",
    "message_key",
    "next_clock",
    "parse_envelope",
    "register_scheme",
    "sign_entry",
    "signed_bytes",
    "validate",
    "validate_many",
    "verify_signature",
]
