"""The discrete-event simulator: the real routers, and simsub's rules, on virtual time.

Its modules are imported one by one (`from gossiplog.sim.simsub.simsub import run_simsub`), so that nothing loads what it does not need.
"""

__all__: list[str] = []
