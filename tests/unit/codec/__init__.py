"""Tests of gossiplog.codec."""
