"""Members of a log, decided by the log's own entries: pure rules that tell which entries belong, and which of these count.

How a driver uses them. `has_policy(topic)` says whether a log has members. The driver checks its first entry with `parse_policy` and makes
`Members(policy)`. Each entry has a `View`, the union of what its parents pass on: `ControlEntry.view_after` of a control entry, the view of
data, `NOTHING` of the policy's entry. `is_control` tells control entries from data. Then

    data             belongs if `holdings(author, view)` is not empty
    a control entry  belongs if `find_refusal(parse_said(entry), author, view, kept, named)` is None; it is then added by `add`

`bars_of_control`, `bars_of_data` and `bars_of_node` return the revocations that make an entry void, or a node removed, as of now. For each
data entry the driver stores the revocations of `against(holdings)` whose `keep` does not cover the entry: all of them, if the entry comes
after them. When a revocation comes later, the driver checks the data that is there.
"""

from .forms import (
    DID_CHARS,
    Admit,
    Grant,
    Policy,
    Revoke,
    Said,
    encode_said,
    find_wrong,
    has_policy,
    is_control,
    named_in,
    parse_policy,
    parse_said,
)
from .invitation import encode_code, invitation_signer
from .members import ControlEntry, MemberNode, Members
from .views import NOTHING, View, decode_view, encode_view

__all__ = [
    "DID_CHARS",
    "NOTHING",
    "Admit",
    "ControlEntry",
    "Grant",
    "MemberNode",
    "Members",
    "Policy",
    "Revoke",
    "Said",
    "View",
    "decode_view",
    "encode_code",
    "encode_said",
    "encode_view",
    "find_wrong",
    "has_policy",
    "invitation_signer",
    "is_control",
    "named_in",
    "parse_policy",
    "parse_said",
]
