"""Tests of gossiplog.log."""
