"""RPCs as bytes: encoded within limits, and decoded strictly."""
