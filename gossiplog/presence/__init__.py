"""Presence: values that are true only for the moment, such as who has a log open. Signed, spread to connected peers, and never stored.

`room.PresenceRoom` is the pure machine of one log: `handle(event, now)` returns its actions. It decides which state of each author is the
newest, when it ends, which peers get it, and which peers send too much.

Source: docs/spec/presence.md.
"""
