"""What PyBullet is given to load: a repaired copy of a robot's file."""

from __future__ import annotations

import contextlib
import tempfile
import xml.etree.ElementTree as ET  # only to build elements; files are parsed by defusedxml
from collections.abc import Iterator
from pathlib import Path

import defusedxml.ElementTree
import numpy as np

from ik_sim.chain import Chain
from ik_sim.control import ControlSettings
from ik_sim.urdf import MOVING, UrdfModel

PAYLOAD_LINK = "ik_sim_payload"
"""The link that carries what hangs on the tool."""
WEIGHTLESS = 1e-5
"""A link without a shape that weighs no more is a mere frame [kg]; files give them a milligram, lest engines assume 1 kg."""


@contextlib.contextmanager
def physics_urdf(
    model: UrdfModel, chain: Chain, control: ControlSettings, visuals: bool, bare: bool = False
) -> Iterator[tuple[str, list[str]]]:
    """A repaired copy of the robot's file for PyBullet, for as long as it loads; and what deserves a warning.

    Links get the mass properties that PyBullet would invent, meshes their full paths, the tool its payload. Collision
    shapes are left out of a world without boxes, where they would cost a seventh of every step for nothing; and where the
    arm is wanted `bare`, so are frames at its ends (a tool, a flange) that weigh nothing and have no shape, each of which
    costs as much as a link.
    """
    tree = defusedxml.ElementTree.parse(model.path)
    root = tree.getroot()
    assert root is not None  # read_urdf has seen it
    warnings = []
    movers = {joint.child for joint in model.joints if joint.kind in MOVING}
    for element in root.findall("link"):
        link = model.link(element.get("name", ""))
        if link.inertial is None or link.inertial.inertia is None:
            for old in element.findall("inertial"):
                element.remove(old)
            # A fixed frame adds nothing to its parent; a link that moves alone needs inertia for its motor to turn.
            mass = link.inertial.mass if link.inertial else 0.001 if link.name in movers else 0.0
            if link.name in movers or mass > 0.0:
                warnings.append(f"link {link.name} states no inertia; simulated as {mass:g} kg with 1e-6 kg m²")
            element.append(_inertial(mass, 1e-6 if mass > 0.0 else 0.0, (0.0, 0.0, 0.0)))
        for tag, shapes, wanted in (
            ("visual", link.visuals, visuals),
            ("collision", link.collisions, bool(control.boxes)),
        ):
            for shape_element, shape in zip(element.findall(tag), shapes, strict=True):
                mesh = shape_element.find("geometry/mesh")
                # A missing mesh, which read_urdf has warned of, would make PyBullet refuse the whole file.
                if not wanted or (mesh is not None and shape.path is None):
                    element.remove(shape_element)
                elif mesh is not None:
                    mesh.set("filename", str(shape.path))
    if control.payload > 0.0:
        T = chain.T_last_tool
        offset = T[:3, :3] @ np.array(control.payload_offset) + T[:3, 3]
        link = ET.SubElement(root, "link", name=PAYLOAD_LINK)
        link.append(_inertial(control.payload, 1e-6 * control.payload, (0.0, 0.0, 0.0)))
        joint = ET.SubElement(root, "joint", name=f"{PAYLOAD_LINK}_joint", type="fixed")
        ET.SubElement(joint, "parent", link=chain.tool_link)
        ET.SubElement(joint, "child", link=PAYLOAD_LINK)
        ET.SubElement(joint, "origin", xyz=" ".join(repr(float(x)) for x in offset), rpy="0 0 0")
    if bare:
        _remove_empty_ends(root)
    with tempfile.TemporaryDirectory(prefix="ik_sim_") as folder:
        path = Path(folder) / "robot.urdf"
        tree.write(path, encoding="utf-8", xml_declaration=True)
        yield str(path), warnings


def _remove_empty_ends(root: ET.Element) -> None:
    """Take away fixed frames that nothing hangs on, until each end of the tree weighs something or moves."""
    while True:
        joints = {_link_of(joint, "child"): joint for joint in root.findall("joint")}
        parents = {_link_of(joint, "parent") for joint in joints.values()}
        empty = [
            link
            for link in root.findall("link")
            if (name := link.get("name", "")) not in parents
            and name in joints
            and joints[name].get("type") == "fixed"
            and link.find("visual") is None
            and link.find("collision") is None
            and _mass(link) <= WEIGHTLESS
        ]
        if not empty:
            return
        for link in empty:
            root.remove(link)
            root.remove(joints[link.get("name", "")])


def _link_of(joint: ET.Element, end: str) -> str:
    found = joint.find(end)
    assert found is not None  # read_urdf has seen it
    return found.get("link", "")


def _mass(link: ET.Element) -> float:
    found = link.find("inertial/mass")
    return 0.0 if found is None else float(found.get("value", "0"))


def _inertial(mass: float, inertia: float, xyz: tuple[float, float, float]) -> ET.Element:
    element = ET.Element("inertial")
    ET.SubElement(element, "origin", xyz=" ".join(map(repr, xyz)), rpy="0 0 0")
    ET.SubElement(element, "mass", value=repr(mass))
    value = repr(inertia)
    ET.SubElement(element, "inertia", ixx=value, ixy="0", ixz="0", iyy=value, iyz="0", izz=value)
    return element


def rest_positions(model: UrdfModel, q: dict[str, float]) -> dict[str, float]:
    """Where joints beside the arm are held: at 0 or the nearest limit, mimic joints as their master says."""
    by_name = {joint.name: joint for joint in model.joints if joint.kind in MOVING}

    def position(name: str) -> float:
        joint = by_name[name]
        if joint.mimic is not None:
            return joint.mimic.multiplier * position(joint.mimic.joint) + joint.mimic.offset
        return q.get(name, min(max(0.0, joint.lower), joint.upper))

    return {name: position(name) for name in by_name}
