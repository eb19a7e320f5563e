"""Breaking a log on purpose: killed processes, full disks, flipped bits, cancelled calls."""
