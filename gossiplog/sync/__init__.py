"""Pull what another log has and ours lacks, and serve others who pull from us: both sides of a merkle sync as machines without I/O."""
