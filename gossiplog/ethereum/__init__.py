"""The reference's signers for Ethereum wallets: EIP-712 messages, and sessions by EIP-712 and SIWE. Needs the extra `ethereum`."""

from ..entry.schemes import SignatureScheme, register_scheme
from .eip712 import ACTION, SECP256K1_CODE, SESSION, Eip712Signer, verify_action, verify_session_message
from .keys import SIGNATURE_BYTES
from .sessions import Wallet, is_session_authorised

__all__ = ["SCHEME", "Eip712Signer", "Wallet", "is_session_authorised", "register"]

SCHEME = "eip712"
"""The name of the scheme of session keys of EIP-712, for a log that accepts them."""


def register() -> None:
    """Enable this process to verify entries of EIP-712 session keys. Opening a log with the scheme does this too."""
    for codec, verify in ((ACTION, verify_action), (SESSION, verify_session_message)):
        register_scheme(SignatureScheme(SCHEME, SECP256K1_CODE, verify, SIGNATURE_BYTES, frozenset({codec})))
