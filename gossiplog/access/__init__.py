"""Members of a log, decided by the log's own entries: pure rules, from control entries to what belongs and what counts.

How a driver uses it. `has_policy(topic)` says whether a log has members; `parse_policy` checks its first entry, and `Members(policy)`
begins. Each entry has a `View`: the union of its parents' views after themselves, which is `ControlEntry.view_after` for a control entry,
its own view for data, and `NOTHING` for the policy's entry. With its view,

    is_control(entry)        data: it belongs if `holdings(author, view)` is not empty
                             control: `parse_said`, then `find_refusal(said, author, view, kept, named)`, then `add`

and `bars_of_control`, `bars_of_data` and `bars_of_node` say by which revocations something is void, or a node removed, as things are now.
For data the driver keeps those of `against(holdings)` within whose `keep` the entry is not: all of them, if the entry comes after them;
when a revocation comes, it looks at the data that is there.
"""

from .forms import (
    DID_CHARS,
    ROLES,
    Admit,
    Grant,
    Policy,
    Revoke,
    Said,
    encode_said,
    find_wrong,
    has_policy,
    is_control,
    may_hold,
    named_in,
    parse_policy,
    parse_said,
)
from .invitation import CODE_BYTES, encode_code, invitation_signer
from .members import LEVELS_MAX, ControlEntry, MemberNode, Members
from .views import NOTHING, View, decode_view, encode_view

__all__ = [
    "CODE_BYTES",
    "DID_CHARS",
    "LEVELS_MAX",
    "NOTHING",
    "ROLES",
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
    "may_hold",
    "named_in",
    "parse_policy",
    "parse_said",
]
