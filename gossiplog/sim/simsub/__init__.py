"""simsub, a simulator of 2018. Ours reproduces its published figures."""
