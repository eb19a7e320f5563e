"""The reference's signers of Ethereum wallets: EIP-712 messages, and sessions by EIP-712 and SIWE; needs the extra `ethereum`."""

from ..entry.schemes import SignatureScheme, register_scheme
from .eip712 import ACTION, SECP256K1_CODE, SESSION, Eip712Signer, verify_action, verify_session_message
from .keys import SIGNATURE_BYTES
from .sessions import Wallet, is_session_authorised

__all__ = ["SCHEME", "Eip712Signer", "Wallet", "is_session_authorised", "register"]

SCHEME = "eip712"
"""The schemes of a log that accepts entries signed by session keys of EIP-712."""


def register() -> None:
    """Let this process verify entries of session keys of EIP-712. Opening a log with the scheme does this as well."""
    for codec, verify in ((ACTION, verify_action), (SESSION, verify_session_message)):
        register_scheme(SignatureScheme(SCHEME, SECP256K1_CODE, verify, SIGNATURE_BYTES, frozenset({codec})))
