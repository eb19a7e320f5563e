"""The formats of transparency logs: RFC 6962 trees in tiles, signed notes, checkpoints, proofs; and our segments of VALUEs.

Source: docs/spec/bucket.md; C2SP signed-note, tlog-checkpoint, tlog-tiles, tlog-cosignature, tlog-proof, tlog-policy; RFC 6962 and 9162.
"""
