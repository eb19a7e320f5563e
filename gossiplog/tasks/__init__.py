"""What trio lacks: nurseries whose end is a block's end, a cheap sleep, work on many items in order, and pages as an iterator."""
