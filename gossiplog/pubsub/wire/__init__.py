"""RPCs as bytes, within limits, and strictly back."""
