"""Other libraries' inverse kinematics behind one small class each, for `ik-sim bench`.

Every peer runs in a process of its own, started by :mod:`ik_sim.peers.host`: with this Python where its packages are
installed, else with the Python of an environment under the user's cache that `ik-sim bench --install-peers` fills. So
packages that can't live together, and libraries that crash, stay apart. What runs inside that process (`peer.py`,
`worker.py` and the adapters) imports nothing but NumPy and the peer itself.

To add one, write a class like those here and name it in PEERS.
"""

from __future__ import annotations

PEERS: dict[str, str] = {
    "eaik": "eaik_peer:Eaik",
    "ssik": "ssik_peer:Ssik",
    "ur_analytic_ik": "ur_analytic_ik_peer:UrAnalyticIk",
    "py_ikgeo": "py_ikgeo_peer:PyIkgeo",
    "dynibo": "dynibo_peer:Dynibo",
    "cartan": "cartan_peer:Cartan",
    "rtb": "rtb_peer:RoboticsToolbox",
    "optik": "optik_peer:Optik",
    "trac_ik": "trac_ik_peer:TracIk",
    "pinocchio": "pinocchio_peer:PinocchioLoop",
    "pink": "pink_peer:Pink",
    "mink": "mink_peer:Mink",
    "ikpy": "ikpy_peer:IkPy",
    "scipy": "scipy_peer:ScipyLeastSquares",
}
"""Name in the benchmark -> module and class in this package."""


def peer_class(name: str) -> type:
    """The adapter class of that name; loading it doesn't load the peer's own packages."""
    return adapter(PEERS[name])


def adapter(place: str) -> type:
    """The class at MODULE:CLASS in this package, or at FILE.py:CLASS anywhere."""
    import importlib.util

    module, _, cls = place.rpartition(":")
    if not module.endswith(".py"):
        return getattr(importlib.import_module(f"ik_sim.peers.{module}"), cls)
    spec = importlib.util.spec_from_file_location("ik_sim_peer_from_file", module)
    if spec is None or spec.loader is None:
        raise ImportError(f"no adapter in {module}")
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return getattr(found, cls)
