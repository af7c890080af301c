"""URDF files: read strictly, then cut into the chain between two links.

Whatever in a file bears on the motion is honoured or refused, in words that name the file, the line, what was found
and what would be right. What only deserves a look (a joint without effort, a mesh that isn't there) becomes one of
`UrdfModel.warnings`. Elements that say nothing about links and joints (`<gazebo>`, `<transmission>`, ...) are skipped.

The parser accepts no document type and no entities, and fetches nothing. Angles are in radians and lengths in metres;
`rpy` turns about the fixed x, y, z axes in that order. A multiple of π/2 written with ten digits or more counts as
exact (`se3.rpy_to_matrix`), which moves a pose by less than 2e-9 rad and keeps the matrices free of 6e-17.
"""

from __future__ import annotations

import difflib
import math
import os
import re
import stat
import urllib.parse
import warnings
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from xml.sax import SAXException
from xml.sax.handler import ContentHandler
from xml.sax.xmlreader import AttributesImpl, Locator

import defusedxml
import numpy as np
from defusedxml.expatreader import DefusedExpatParser
from jaxtyping import Float

from ik_sim import se3
from ik_sim.chain import Chain, Joint, Mimic
from ik_sim.errors import InvalidArgumentError, UnknownNameError, UrdfError

MAX_BYTES = 16 * 1024 * 1024
"""Larger files are refused: the largest arms in public use take about 0.1 MB."""
MAX_ELEMENTS = 50_000
MAX_DEPTH = 64
MAX_NUMBER = 1e6
"""Largest distance [m] or angle [rad] of an origin; beyond lies a slip of units, and in the end an overflow."""

MOVING = ("revolute", "continuous", "prismatic")
KINDS = (*MOVING, "fixed", "floating", "planar")


class UrdfWarning(UserWarning):
    """A chain was built, but not all of the file could be followed; the message says what was done instead."""


@dataclass(frozen=True, eq=False)
class Inertial:
    """Mass properties of a link."""

    mass: float
    """[kg]"""
    T_link_com: Float[np.ndarray, "4 4"]
    """Centre of mass, and the axes that `inertia` is written in, in the link's frame."""
    inertia: Float[np.ndarray, "3 3"] | None
    """About the centre of mass [kg m²]; None where the file gives none."""


@dataclass(frozen=True, eq=False)
class Shape:
    """One `<visual>` or `<collision>` of a link."""

    kind: str
    """box, cylinder, sphere, capsule, mesh, or the name of a geometry that isn't known here."""
    T_link_shape: Float[np.ndarray, "4 4"]
    size: tuple[float, ...] = ()
    """box: x, y, z; cylinder and capsule: radius, length; sphere: radius [m]; mesh: scale in x, y, z."""
    filename: str | None = None
    """A mesh's name as it stands in the file."""
    path: Path | None = None
    """Where that mesh was found; None if it wasn't."""


@dataclass(frozen=True, eq=False)
class UrdfLink:
    """A rigid body."""

    name: str
    inertial: Inertial | None
    visuals: tuple[Shape, ...]
    collisions: tuple[Shape, ...]
    line: int
    """Where the element starts in the file."""


@dataclass(frozen=True, eq=False)
class UrdfJoint:
    """What holds two links together."""

    name: str
    kind: str
    """One of `KINDS`."""
    parent: str
    child: str
    T_parent_joint: Float[np.ndarray, "4 4"]
    """The joint's frame, which is the child's frame at position zero, in the parent's frame."""
    axis: Float[np.ndarray, "3"]
    """Unit vector in the joint's frame (planar: normal of the plane)."""
    lower: float
    """[rad] or [m]; -inf for a continuous joint, 0 where nothing moves."""
    upper: float
    velocity: float
    """[rad/s] or [m/s]; inf where the file gives none."""
    effort: float
    """[Nm] or [N]; inf where the file gives none."""
    soft_lower: float | None
    """From `<safety_controller>`. Listed beside the hard limits, never in force instead of them."""
    soft_upper: float | None
    mimic: Mimic | None
    damping: float
    """[Nms/rad] or [Ns/m]"""
    friction: float
    """[Nm] or [N]"""
    line: int
    """Where the element starts in the file."""


@dataclass(frozen=True, eq=False)
class UrdfModel:
    """A checked robot description: one tree of links."""

    path: Path
    name: str
    links: tuple[UrdfLink, ...]
    """In the order of the file."""
    joints: tuple[UrdfJoint, ...]
    """In the order of the file, which needn't run from base to tip."""
    root: str
    """The one link without a parent."""
    warnings: tuple[str, ...]
    """What deserves a look although it doesn't stop the reader."""

    @property
    def tips(self) -> tuple[str, ...]:
        """The links without children, depth first: branch after branch in the order of the joints."""
        children: dict[str, list[str]] = {}
        for joint in self.joints:
            children.setdefault(joint.parent, []).append(joint.child)
        tips: list[str] = []
        pending = [self.root]
        while pending:
            link = pending.pop()
            below = children.get(link)
            if below:
                pending.extend(reversed(below))
            else:
                tips.append(link)
        return tuple(tips)

    @property
    def movable(self) -> tuple[str, ...]:
        """The joints that can be set: revolute, continuous and prismatic ones that don't mimic another."""
        return tuple(joint.name for joint in self.joints if joint.kind in MOVING and joint.mimic is None)

    def link(self, name: str) -> UrdfLink:
        """The link of that name."""
        for link in self.links:
            if link.name == name:
                return link
        raise UnknownNameError("link", name, (link.name for link in self.links))

    def joint(self, name: str) -> UrdfJoint:
        """The joint of that name."""
        if name not in self._joint_by_name:
            raise UnknownNameError("joint", name, self._joint_by_name)
        return self._joint_by_name[name]

    def joint_table(self) -> list[dict[str, str | float | None]]:
        """One row for every moving joint, for listings; None where there is no limit, as JSON has no infinity."""

        def finite(value: float | None) -> float | None:
            return value if value is not None and math.isfinite(value) else None

        return [
            {
                "name": joint.name,
                "type": joint.kind,
                "lower": finite(joint.lower),
                "upper": finite(joint.upper),
                "soft_lower": finite(joint.soft_lower),
                "soft_upper": finite(joint.soft_upper),
                "velocity": finite(joint.velocity),
                "effort": finite(joint.effort),
                "mimic": joint.mimic.joint if joint.mimic is not None else None,
            }
            for joint in self.joints
            if joint.kind in MOVING
        ]

    def chain(
        self,
        base_link: str | None = None,
        tool_link: str | None = None,
        T_tool: Float[np.ndarray, "4 4"] | None = None,
    ) -> Chain:
        """The arm between two links; branches (fingers, lids, cameras) stay out of it.

        A joint that mimics another one *outside* the chain can't be followed, since that one has no place in q: it is
        held where the other stands at zero (or at its limit nearest to zero), and a `UrdfWarning` says so.

        Args:
            base_link: where the chain starts; the root if None. Any link above the tool will do.
            tool_link: where it ends; needed if the robot has more than one tip.
            T_tool: the tool's pose in the tool link's frame, for what the file doesn't hold (a gripper, a pen).

        Raises:
            UnknownNameError: the model has no such link.
            InvalidArgumentError: the tool isn't below the base, nothing moves between them, or the tool is ambiguous.
            UrdfError: a joint between them is of a kind that can't be part of a chain.
        """
        base_link = self.root if base_link is None else self.link(base_link).name
        if tool_link is None:
            tool_link = self._only_tip(base_link)
        tool_link = self.link(tool_link).name
        path = self._path(base_link, tool_link)
        for joint in path:
            if joint.kind in ("floating", "planar"):
                raise UrdfError(
                    self.path,
                    f"line {joint.line}: joint {joint.name!r} between {base_link!r} and {tool_link!r} is {joint.kind}, "
                    f"which can't be part of a chain (can be: {', '.join(MOVING)}, fixed); "
                    f"start the chain below it, with base_link={joint.child!r}",
                )
        on_chain = {joint.name for joint in path if joint.kind in MOVING}
        joints: list[Joint] = []
        for joint in path:
            chain_joint, remark = self._chain_joint(joint, on_chain)
            joints.append(chain_joint)
            if remark:
                warnings.warn(f"{self.path}: {remark}", UrdfWarning, stacklevel=2)
        if all(joint.kind == "fixed" for joint in joints):
            raise InvalidArgumentError(
                "tool_link", f"no joint moves between {base_link!r} and {tool_link!r} in {self.path}"
            )
        T_last_tool = None if T_tool is None else se3.check_pose(T_tool, "T_tool")
        return Chain.from_joints(joints, base_link=base_link, tool_link=tool_link, T_last_tool=T_last_tool)

    def _only_tip(self, base_link: str) -> str:
        tips = [tip for tip in self.tips if base_link == self.root or self._is_below(tip, base_link)]
        if len(tips) == 1:
            return tips[0]
        raise InvalidArgumentError(
            "tool_link", f"must be given, since {self.path} has {len(tips)} tips below {base_link!r}: {_listed(tips)}"
        )

    @cached_property
    def _joint_by_name(self) -> dict[str, UrdfJoint]:
        return {joint.name: joint for joint in self.joints}

    @cached_property
    def _joint_above(self) -> dict[str, UrdfJoint]:
        return {joint.child: joint for joint in self.joints}

    def _is_below(self, link: str, above: str) -> bool:
        while link != above:
            if link not in self._joint_above:
                return False
            link = self._joint_above[link].parent
        return True

    def _path(self, base_link: str, tool_link: str) -> list[UrdfJoint]:
        if base_link == tool_link:
            raise InvalidArgumentError("tool_link", f"is the base link {base_link!r}; a chain needs a joint in between")
        if not self._is_below(tool_link, base_link):
            if self._is_below(base_link, tool_link):
                advice = f"{base_link!r} is below {tool_link!r}: swap the two"
            else:
                advice = f"they are on different branches; the root {self.root!r} is above every link"
            raise InvalidArgumentError(
                "tool_link", f"{tool_link!r} is not below the base link {base_link!r} in {self.path}; {advice}"
            )
        path: list[UrdfJoint] = []
        link = tool_link
        while link != base_link:
            path.append(self._joint_above[link])
            link = path[-1].parent
        return path[::-1]

    def _chain_joint(self, joint: UrdfJoint, on_chain: Collection[str]) -> tuple[Joint, str]:
        """The joint as part of a chain, and a remark if it couldn't be taken over as it is."""
        kind, T_parent_joint, mimic, remark = joint.kind, joint.T_parent_joint, None, ""
        if joint.mimic is not None:
            master, multiplier, offset = self._master(joint)
            if master.name in on_chain:
                mimic = Mimic(joint=master.name, multiplier=multiplier, offset=offset)
            else:
                held = multiplier * min(max(0.0, master.lower), master.upper) + offset
                remark = (
                    f"joint {joint.name!r} mimics {master.name!r}, which is not part of the chain; "
                    f"it is held at {held:.6g}"
                )
                motion = np.eye(4)
                if joint.kind == "prismatic":
                    motion[:3, 3] = held * joint.axis
                else:
                    motion[:3, :3] = se3.rotation_exp(held * joint.axis)
                kind, T_parent_joint = "fixed", T_parent_joint @ motion
        return Joint(
            name=joint.name,
            kind=kind,
            T_parent_joint=T_parent_joint,
            axis=joint.axis,
            lower=joint.lower,
            upper=joint.upper,
            velocity=joint.velocity,
            effort=joint.effort,
            mimic=mimic,
            soft_lower=joint.soft_lower,
            soft_upper=joint.soft_upper,
        ), remark

    def _master(self, joint: UrdfJoint) -> tuple[UrdfJoint, float, float]:
        """The joint at the end of a row of mimics, with the multiplier and offset of the whole row."""
        first, multiplier, offset = joint, 1.0, 0.0
        while joint.mimic is not None:
            offset += multiplier * joint.mimic.offset
            multiplier *= joint.mimic.multiplier
            joint = self._joint_by_name[joint.mimic.joint]
        if not max(abs(multiplier), abs(offset)) <= MAX_NUMBER:
            raise UrdfError(
                self.path,
                f"line {first.line}: joint {first.name!r}: mimics {joint.name!r} with multiplier {multiplier:g} and "
                f"offset {offset:g} in all; at most {MAX_NUMBER:g} is wanted",
            )
        return joint, multiplier, offset


def read_urdf(path: str | os.PathLike[str]) -> UrdfModel:
    """Read and check a URDF file.

    Args:
        path: the file. Meshes named `package://name/...` are looked for in a folder `name` beside the file or beside
            any folder above it.

    Raises:
        UrdfError: the file can't be read, isn't URDF, or describes no single tree of links; the message names the
            line and what would be right.
    """
    if not isinstance(path, str | os.PathLike):
        raise InvalidArgumentError("path", f"must be the path of a URDF file, not {type(path).__name__}")
    path = Path(path)
    reader = _Reader(path)
    return reader.model(_parse(path, _read_bytes(path)))


# --- the file ---------------------------------------------------------------------------------------------------------


def _read_bytes(path: Path) -> bytes:
    try:
        status = path.stat()
    except FileNotFoundError:
        raise UrdfError(path, f"no such file{_urdf_files(path.parent)}") from None
    except OSError as error:
        raise UrdfError(path, f"can't be read: {error.strerror or error}") from None
    except ValueError as error:  # a NUL in the name, or letters that the file system's encoding lacks
        raise UrdfError(path, f"is no usable path: {error}") from None
    if stat.S_ISDIR(status.st_mode):
        raise UrdfError(path, f"is a folder; a URDF file is wanted{_urdf_files(path)}")
    if not stat.S_ISREG(status.st_mode):  # a pipe would wait for ever, a device might never end
        raise UrdfError(path, "is not an ordinary file")
    if status.st_size > MAX_BYTES:
        raise UrdfError(path, f"has {status.st_size} bytes; at most {MAX_BYTES} are read")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UrdfError(path, f"can't be read: {error.strerror or error}") from None
    if not data.strip():
        raise UrdfError(path, "is empty")
    return data


def _urdf_files(folder: Path) -> str:
    try:
        names = sorted(entry.name for entry in folder.iterdir() if entry.suffix == ".urdf")
    except (OSError, ValueError):
        return ""
    return f"; {folder} holds: {_listed(names)}" if names else ""


# --- XML --------------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Element:
    """An XML element that knows its line."""

    tag: str
    attributes: dict[str, str]
    line: int
    children: list[_Element] = field(default_factory=list)

    def all(self, tag: str) -> list[_Element]:
        return [child for child in self.children if child.tag == tag]


class _TreeBuilder(ContentHandler):
    """Collects `<link>` and `<joint>` elements; what stands outside of them is only looked at for signs of xacro."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.root: _Element | None = None
        self._open: list[_Element | None] = []  # None: not kept
        self._count = 0
        self._place: Locator | None = None

    def setDocumentLocator(self, locator: Locator) -> None:
        """Take what will tell the line."""
        self._place = locator

    def startElement(self, name: str, attrs: AttributesImpl) -> None:
        """Check one element's place, and keep it if it matters."""
        line = 1 if self._place is None else self._place.getLineNumber() or 1
        self._count += 1
        depth = len(self._open)
        if self._count > MAX_ELEMENTS:
            raise UrdfError(self.path, f"line {line}: more than {MAX_ELEMENTS} elements; is this a robot description?")
        if depth >= MAX_DEPTH:
            raise UrdfError(self.path, f"line {line}: elements nest more than {MAX_DEPTH} deep")
        attributes = {str(key): str(value) for key, value in attrs.items()}
        if depth == 0:
            if name != "robot":
                raise UrdfError(self.path, f"line {line}: {_not_a_robot(name)}")
            self.root = _Element(name, attributes, line)
            self._open.append(self.root)
            return
        if name.startswith("xacro:"):
            raise UrdfError(self.path, f"line {line}: <{name}> {_XACRO}")
        parent = self._open[-1]
        if parent is None or (depth == 1 and name not in ("link", "joint") and not _close(name, ("link", "joint"))):
            self._open.append(None)
            return
        for key, value in attributes.items():
            if "${" in value or "$(" in value:
                raise UrdfError(self.path, f"line {line}: <{name} {key}={_quoted(value)}> {_XACRO}")
        element = _Element(name, attributes, line)
        parent.children.append(element)
        self._open.append(element)

    def endElement(self, name: str) -> None:
        """Leave an element."""
        self._open.pop()


_XACRO = "is xacro, from which a URDF is generated; expand it first: xacro FILE > robot.urdf"
_OTHER_FORMATS = {
    "sdf": "SDF (Gazebo)",
    "gazebo": "SDF (Gazebo)",
    "mujoco": "MJCF (MuJoCo)",
    "mujocoinclude": "MJCF (MuJoCo)",
    "COLLADA": "a COLLADA mesh",
    "launch": "a ROS launch file",
    "package": "a ROS package description",
    "Robot": "close, but the names of URDF elements are lower case",
    "html": "a web page",
    "svg": "a picture",
}


def _not_a_robot(name: str) -> str:
    known = _OTHER_FORMATS.get(name)
    return f"the outermost element is <{_cut(name)}>{f' ({known})' if known else ''}; URDF starts with <robot name=...>"


def _parse(path: Path, data: bytes) -> _Element:
    declaration = re.match(rb"""(?:\xef\xbb\xbf)?\s*<\?xml[^>]{0,200}?encoding\s*=\s*["']([\w.-]{1,40})["']""", data)
    encoding = declaration.group(1).decode("ascii").lower() if declaration else "utf-8"
    if encoding in ("utf-8", "utf8") and not data.startswith((b"\xff\xfe", b"\xfe\xff")):
        try:
            data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = data[: error.start].count(b"\n") + 1
            raise UrdfError(
                path,
                f"line {line}: byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8, or name its "
                f'encoding in the first line: <?xml version="1.0" encoding="iso-8859-1"?>',
            ) from None
    if data[:2] != b"<?" and data.lstrip().startswith(b"<?xml"):
        data = data.lstrip()  # blank lines before the declaration: XML forbids them, and they do no harm
    builder = _TreeBuilder(path)
    parser = DefusedExpatParser(forbid_dtd=True, forbid_entities=True, forbid_external=True)
    parser.setContentHandler(builder)
    builder.setDocumentLocator(parser)  # the parser itself does so only for files that it opens
    try:
        parser.feed(data)
        parser.close()
    except UrdfError:
        raise
    except defusedxml.DTDForbidden:
        raise UrdfError(path, "holds a <!DOCTYPE ...>; a URDF needs none, and none is accepted") from None
    except defusedxml.DefusedXmlException as error:
        raise UrdfError(path, f"holds XML that is not accepted ({type(error).__name__})") from None
    except SAXException as error:
        line = getattr(error, "getLineNumber", lambda: None)()
        place = f"line {line}: " if line else ""
        raise UrdfError(path, f"{place}is not well-formed XML: {error.getMessage()}") from None
    except (LookupError, ValueError) as error:  # an encoding that Python or expat doesn't know
        raise UrdfError(path, f"can't be decoded: {error}; save the file as UTF-8") from None
    if builder.root is None:
        raise UrdfError(path, "holds no XML element")
    return builder.root


# --- from elements to the model ---------------------------------------------------------------------------------------

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)

_CHILDREN = {
    "link": ("inertial", "visual", "collision"),
    "inertial": ("origin", "mass", "inertia"),
    "visual": ("origin", "geometry", "material"),
    "collision": ("origin", "geometry"),
    "joint": ("origin", "parent", "child", "axis", "limit", "mimic", "dynamics", "safety_controller", "calibration"),
}
_ATTRIBUTES = {
    "origin": ("xyz", "rpy"),
    "mass": ("value",),
    "inertia": ("ixx", "ixy", "ixz", "iyy", "iyz", "izz"),
    "mesh": ("filename", "scale"),
    "parent": ("link",),
    "child": ("link",),
    "axis": ("xyz",),
    "limit": ("lower", "upper", "velocity", "effort"),
    "mimic": ("joint", "multiplier", "offset"),
    "dynamics": ("damping", "friction"),
    "safety_controller": ("soft_lower_limit", "soft_upper_limit", "k_position", "k_velocity"),
}
_CLOSED = ("origin", "parent", "child", "axis")  # a further attribute here would mean another motion


class _Reader:
    """One reading of one file: its path for the messages, and the warnings gathered on the way."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.warnings: list[str] = []

    def error(self, element: _Element, message: str) -> UrdfError:
        return UrdfError(self.path, f"line {element.line}: {message}")

    def warn(self, element: _Element, message: str) -> None:
        self.warnings.append(f"line {element.line}: {message}")

    def model(self, root: _Element) -> UrdfModel:
        for element in root.children:
            near = _close(element.tag, ("link", "joint"))
            inside = {child.tag for child in element.children}
            if near and near != element.tag and (inside & set(_CHILDREN[near]) or element.tag.lower() == near):
                raise self.error(element, f"<{_cut(element.tag)}> is no element of URDF; write <{near}>")
        name = root.attributes.get("name", "")
        if not name:
            name = self.path.stem
            self.warn(root, f"<robot> has no name; {name!r} is used")
        link_elements = self.named(root.all("link"))
        if not link_elements:
            raise self.error(root, "the robot has no <link>")
        joint_elements = self.named(root.all("joint"))
        links = tuple(self.link(element) for element in link_elements.values())
        joints = tuple(self.joint(element, link_elements) for element in joint_elements.values())
        self.check_mimics(joints)
        root_link = self.check_tree(links, joints)
        self.warn_about_limits(joints)
        return UrdfModel(self.path, name, links, joints, root_link, tuple(self.warnings))

    def named(self, elements: Iterable[_Element]) -> dict[str, _Element]:
        found: dict[str, _Element] = {}
        for element in elements:
            name = element.attributes.get("name", "")
            if not name.strip():
                raise self.error(element, f"<{element.tag}> has no name; write <{element.tag} name=...>")
            if name in found:
                raise self.error(
                    element,
                    f"a second {element.tag} is named {name!r} (the first is in line {found[name].line}); "
                    "names must differ",
                )
            found[name] = element
        return found

    # links

    def link(self, element: _Element) -> UrdfLink:
        where = f"link {element.attributes['name']!r}"
        self.check_children(element, where)
        inertial = self.one(element, "inertial", where)
        return UrdfLink(
            name=element.attributes["name"],
            inertial=None if inertial is None else self.inertial(inertial, where),
            visuals=tuple(self.shape(shape, where) for shape in element.all("visual")),
            collisions=tuple(self.shape(shape, where) for shape in element.all("collision")),
            line=element.line,
        )

    def inertial(self, element: _Element, where: str) -> Inertial:
        self.check_children(element, where)
        mass_element = self.one(element, "mass", where)
        if mass_element is None:
            raise self.error(element, f"{where}: <inertial> has no <mass value=...>")
        mass = self.number(mass_element, "value", where)
        if mass < 0.0:
            raise self.error(mass_element, f"{where}: mass {mass:g} kg is negative")
        inertia_element = self.one(element, "inertia", where)
        if inertia_element is None:
            self.warn(element, f"{where}: <inertial> has no <inertia>")
            inertia = None
        else:
            xx, yy, zz = (self.number(inertia_element, name, where) for name in ("ixx", "iyy", "izz"))
            xy, xz, yz = (self.number(inertia_element, name, where, 0.0) for name in ("ixy", "ixz", "iyz"))
            inertia = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
            inertia.setflags(write=False)
            if min(xx, yy, zz) < 0.0:
                self.warn(inertia_element, f"{where}: a moment of inertia is negative")
        return Inertial(mass=mass, T_link_com=self.origin(element, where), inertia=inertia)

    def shape(self, element: _Element, where: str) -> Shape:
        where = f"{where}, {element.tag}"
        self.check_children(element, where)
        T_link_shape = self.origin(element, where)
        geometry = self.one(element, "geometry", where)
        if geometry is None or not geometry.children:
            self.warn(element, f"{where}: has no geometry")
            return Shape("none", T_link_shape)
        body = geometry.children[0]
        if len(geometry.children) > 1:
            raise self.error(body, f"{where}: <geometry> holds {len(geometry.children)} shapes; one is wanted")
        if body.tag == "mesh":
            return self.mesh(body, T_link_shape, where)
        if body.tag == "box":
            size = self.vector(body, "size", where, names="x y z")
        elif body.tag in ("cylinder", "capsule"):
            size = (self.number(body, "radius", where), self.number(body, "length", where))
        elif body.tag == "sphere":
            size = (self.number(body, "radius", where),)
        else:
            self.warn(body, f"{where}: <{_cut(body.tag)}> is no shape of URDF (box, cylinder, sphere, mesh)")
            return Shape(_cut(body.tag), T_link_shape)
        if min(size) < 0.0:
            raise self.error(body, f"{where}: <{body.tag}> has a negative size")
        return Shape(body.tag, T_link_shape, size)

    def mesh(self, element: _Element, T_link_shape: Float[np.ndarray, "4 4"], where: str) -> Shape:
        self.check_attributes(element, where)
        filename = element.attributes.get("filename", "")
        if not filename:
            raise self.error(element, f"{where}: <mesh> has no filename")
        scale = self.vector(element, "scale", where, default=(1.0, 1.0, 1.0), names="x y z")
        path, problem = _find_mesh(filename, self.path)
        if problem:
            self.warn(element, f"{where}: mesh {_quoted(filename)} {problem}")
        return Shape("mesh", T_link_shape, scale, filename, path)

    # joints

    def joint(self, element: _Element, links: dict[str, _Element]) -> UrdfJoint:
        name = element.attributes["name"]
        where = f"joint {name!r}"
        kind = self.kind(element, where)
        self.check_children(element, where)
        parent, child = (self.end(element, tag, where, links) for tag in ("parent", "child"))
        if parent == child:
            raise self.error(element, f"{where}: joins link {parent!r} to itself")
        moving = kind in MOVING
        axis = self.axis(element, where) if moving or kind == "planar" else np.array([1.0, 0.0, 0.0])
        axis.setflags(write=False)
        lower, upper, velocity, effort = self.limits(element, kind, where) if moving else (0.0, 0.0, 0.0, 0.0)
        soft_lower, soft_upper = self.soft_limits(element, where) if moving else (None, None)
        damping, friction = self.dynamics(element, where) if moving else (0.0, 0.0)
        return UrdfJoint(
            name=name,
            kind=kind,
            parent=parent,
            child=child,
            T_parent_joint=self.origin(element, where),
            axis=axis,
            lower=lower,
            upper=upper,
            velocity=velocity,
            effort=effort,
            soft_lower=soft_lower,
            soft_upper=soft_upper,
            mimic=self.mimic(element, where, moving),
            damping=damping,
            friction=friction,
            line=element.line,
        )

    def kind(self, element: _Element, where: str) -> str:
        kind = element.attributes.get("type")
        if kind is None:
            raise self.error(element, f"{where}: has no type; one of {', '.join(KINDS)} is wanted")
        if kind not in KINDS:
            near = _close(kind.strip().lower(), KINDS)
            raise self.error(
                element,
                f"{where}: type {_quoted(kind)} is unknown{f' (did you mean {near!r}?)' if near else ''}; "
                f"one of {', '.join(KINDS)} is wanted",
            )
        return kind

    def end(self, element: _Element, tag: str, where: str, links: dict[str, _Element]) -> str:
        end = self.one(element, tag, where)
        if end is None or "link" not in end.attributes:
            raise self.error(end or element, f"{where}: <{tag} link=...> is missing")
        name = end.attributes["link"]
        if name not in links:
            raise self.error(end, f"{where}: its {tag} is {UnknownNameError('link', name, links)}")
        return name

    def axis(self, element: _Element, where: str) -> Float[np.ndarray, "3"]:
        axis_element = self.one(element, "axis", where)
        if axis_element is None:
            return np.array([1.0, 0.0, 0.0])
        axis = np.array(self.vector(axis_element, "xyz", where, default=(1.0, 0.0, 0.0), names="x y z"))
        length = float(np.linalg.norm(axis))
        if length < 1e-6:
            raise self.error(axis_element, f"{where}: axis {_quoted(axis_element.attributes['xyz'])} has no direction")
        if abs(length - 1.0) > 1e-3:
            self.warn(axis_element, f"{where}: axis has length {length:.4g}; it is taken as a direction of length 1")
        return axis / length

    def limits(self, element: _Element, kind: str, where: str) -> tuple[float, float, float, float]:
        limit = self.one(element, "limit", where)
        bounded = kind != "continuous"
        if limit is None:
            if bounded:
                raise self.error(
                    element,
                    f"{where}: a {kind} joint needs <limit lower=... upper=... effort=... velocity=...>"
                    + ("; a joint that turns without end is of type 'continuous'" if kind == "revolute" else ""),
                )
            return -math.inf, math.inf, math.inf, math.inf
        velocity = self.number(limit, "velocity", where, default=math.inf)
        effort = self.number(limit, "effort", where, default=math.inf)
        for name, value in (("velocity", velocity), ("effort", effort)):
            if value < 0.0:
                raise self.error(limit, f"{where}: {name} limit {value:g} is negative; its size is wanted")
        if not bounded:
            if {"lower", "upper"} & set(limit.attributes):
                self.warn(limit, f"{where}: is continuous, so its lower and upper limit are ignored, as URDF says")
            return -math.inf, math.inf, velocity, effort
        if not {"lower", "upper"} & set(limit.attributes):
            raise self.error(
                limit, f"{where}: <limit> has neither lower nor upper, which URDF reads as 0 to 0; write both"
            )
        for name in ("lower", "upper"):
            if name not in limit.attributes:
                self.warn(limit, f"{where}: has no {name} limit, which URDF reads as 0")
        lower = self.number(limit, "lower", where, default=0.0)
        upper = self.number(limit, "upper", where, default=0.0)
        if lower > upper:
            raise self.error(limit, f"{where}: lower limit {lower:g} is above its upper limit {upper:g}")
        if lower == upper:
            self.warn(limit, f"{where}: lower and upper limit are both {lower:g}, so it can't move")
        if kind == "revolute" and 44.0 < max(abs(lower), abs(upper)) <= 720.0:
            self.warn(limit, f"{where}: limits {lower:g} to {upper:g} look like degrees; URDF wants radians")
        return lower, upper, velocity, effort

    def soft_limits(self, element: _Element, where: str) -> tuple[float | None, float | None]:
        safety = self.one(element, "safety_controller", where)
        if safety is None:
            return None, None
        soft_lower, soft_upper = (
            self.number(safety, name, where) if name in safety.attributes else None
            for name in ("soft_lower_limit", "soft_upper_limit")
        )
        if soft_lower is not None and soft_upper is not None and soft_lower > soft_upper:
            raise self.error(
                safety, f"{where}: soft_lower_limit {soft_lower:g} is above soft_upper_limit {soft_upper:g}"
            )
        return soft_lower, soft_upper

    def mimic(self, element: _Element, where: str, moving: bool) -> Mimic | None:
        mimic = self.one(element, "mimic", where)
        if mimic is None:
            return None
        if not moving:
            self.warn(mimic, f"{where}: can't mimic anything, as it is of type {element.attributes['type']!r}")
            return None
        joint = mimic.attributes.get("joint", "")
        if not joint:
            raise self.error(mimic, f"{where}: <mimic> has no joint=...")
        return Mimic(
            joint=joint,
            multiplier=self.number(mimic, "multiplier", where, default=1.0, at_most=MAX_NUMBER),
            offset=self.number(mimic, "offset", where, default=0.0, at_most=MAX_NUMBER),
        )

    def dynamics(self, element: _Element, where: str) -> tuple[float, float]:
        dynamics = self.one(element, "dynamics", where)
        if dynamics is None:
            return 0.0, 0.0
        damping, friction = (self.number(dynamics, name, where, default=0.0) for name in ("damping", "friction"))
        if min(damping, friction) < 0.0:
            raise self.error(dynamics, f"{where}: damping and friction must not be negative")
        return damping, friction

    # the whole

    def check_tree(self, links: Sequence[UrdfLink], joints: Sequence[UrdfJoint]) -> str:
        parents: dict[str, UrdfJoint] = {}
        for joint in joints:
            if joint.child in parents:
                first = parents[joint.child]
                raise UrdfError(
                    self.path,
                    f"line {joint.line}: link {joint.child!r} is the child of two joints, {first.name!r} (line "
                    f"{first.line}) and {joint.name!r}; URDF describes trees, without closed loops",
                )
            parents[joint.child] = joint
        roots = [link.name for link in links if link.name not in parents]
        if len(roots) > 1:
            raise UrdfError(
                self.path,
                f"there are {len(roots)} root links: {_listed(roots)}; a robot has one link without a parent, so a "
                "joint is missing (a fixed one would do) or a link is too many",
            )
        below_root: set[str] = set(roots)
        for link in links:  # each walk upwards ends at the root, at a link seen before, or where it began: in a loop
            walked: dict[str, None] = {}
            name = link.name
            while name not in below_root:
                if name in walked:
                    loop = list(walked)[list(walked).index(name) :]
                    names = ", ".join(f"{parents[other].name!r} (line {parents[other].line})" for other in loop[:10])
                    raise UrdfError(
                        self.path,
                        f"links {_listed(loop)} form a loop, by the joints {names}; URDF describes trees, so one of "
                        "these links must hang from the root",
                    )
                walked[name] = None
                name = parents[name].parent
            below_root.update(walked)
        return roots[0]

    def check_mimics(self, joints: Sequence[UrdfJoint]) -> None:
        by_name = {joint.name: joint for joint in joints}
        good: set[str] = set()  # lead to a joint that moves
        for joint in joints:
            row: dict[str, None] = {}
            last = joint
            while last.mimic is not None and last.name not in good:
                row[last.name] = None
                master = last.mimic.joint
                place = f"line {last.line}: joint {last.name!r}: mimics"
                if master not in by_name:
                    known = (other.name for other in joints if other.kind in MOVING and other is not last)
                    raise UrdfError(self.path, f"{place} {UnknownNameError('joint', master, known)}")
                if master == last.name:
                    raise UrdfError(self.path, f"{place} itself; another joint is wanted")
                if master in row:
                    raise UrdfError(self.path, f"{place} in a circle: {_listed([*row, master])}")
                last = by_name[master]
            if last.kind not in MOVING and row:
                raise UrdfError(
                    self.path,
                    f"line {joint.line}: joint {joint.name!r}: mimics {last.name!r}, which is {last.kind} and "
                    f"has no single position; one of type {', '.join(MOVING)} is wanted",
                )
            good.update(row)

    def warn_about_limits(self, joints: Sequence[UrdfJoint]) -> None:
        moving = [joint for joint in joints if joint.kind in MOVING]
        for what, values in (
            ("effort", {joint.name: joint.effort for joint in moving}),
            ("velocity", {joint.name: joint.velocity for joint in moving}),
        ):
            zero = [name for name, value in values.items() if value == 0.0]
            missing = [name for name, value in values.items() if math.isinf(value)]
            if zero:
                self.warnings.append(f"{what} limit 0, with which a joint can't move: {_listed(zero)}")
            if missing:
                self.warnings.append(f"no {what} limit given, so none is in force: {_listed(missing)}")

    # parts of elements

    def one(self, element: _Element, tag: str, where: str) -> _Element | None:
        """The child of that name, or None; without slips of the pen in its attributes."""
        found = element.all(tag)
        if not found:
            return None
        if len(found) > 1:
            raise self.error(
                found[1], f"{where}: a second <{tag}> (the first is in line {found[0].line}); one is wanted"
            )
        self.check_attributes(found[0], where)
        return found[0]

    def check_children(self, element: _Element, where: str) -> None:
        known = _CHILDREN[element.tag]
        for child in element.children:
            near = _close(child.tag, known)
            if near and child.tag not in known:
                raise self.error(child, f"{where}: <{_cut(child.tag)}> is no element of URDF; write <{near}>")

    def check_attributes(self, element: _Element, where: str) -> None:
        known = _ATTRIBUTES.get(element.tag)
        if known is None:
            return
        for name in element.attributes:
            if name in known:
                continue
            near = _close(name, [other for other in known if other not in element.attributes])
            if near or element.tag in _CLOSED:
                raise self.error(
                    element,
                    f"{where}: <{element.tag}> has an attribute {_quoted(name)} that URDF lacks; "
                    f"write {near or ' and '.join(known)}",
                )

    def origin(self, element: _Element, where: str) -> Float[np.ndarray, "4 4"]:
        origin = self.one(element, "origin", where)
        if origin is None:
            T = np.eye(4)
        else:
            zeros = (0.0, 0.0, 0.0)
            xyz = self.vector(origin, "xyz", where, default=zeros, names="x y z")
            rpy = self.vector(origin, "rpy", where, default=zeros, names="roll pitch yaw")
            T = se3.transform(se3.rpy_to_matrix(np.array(rpy)) + 0.0, np.array(xyz) + 0.0)  # + 0.0: no negative zeros
        T.setflags(write=False)
        return T

    def vector(
        self, element: _Element, name: str, where: str, *, names: str, default: tuple[float, ...] | None = None
    ) -> tuple[float, ...]:
        text = self.text(element, name, where, default)
        if text is None:
            assert default is not None
            return default
        words = text.split()
        place = f"{where}: <{element.tag} {name}={_quoted(text)}>"
        wanted = len(names.split())
        if len(words) != wanted:
            raise self.error(element, f"{place} holds {len(words)} numbers; {wanted} are wanted: {names}")
        return tuple(self.parse_number(element, word, place, MAX_NUMBER) for word in words)

    def number(
        self, element: _Element, name: str, where: str, default: float | None = None, at_most: float = math.inf
    ) -> float:
        text = self.text(element, name, where, default)
        if text is None:
            assert default is not None
            return default
        return self.parse_number(element, text.strip(), f"{where}: <{element.tag} {name}={_quoted(text)}>", at_most)

    def text(self, element: _Element, name: str, where: str, default: object) -> str | None:
        text = element.attributes.get(name)
        if text is None and default is None:
            raise self.error(element, f"{where}: <{element.tag}> has no {name}=...")
        return text

    def parse_number(self, element: _Element, word: str, place: str, at_most: float) -> float:
        if not _NUMBER.fullmatch(word):
            hint = ""
            if re.fullmatch(r"[+-]?(nan|inf|infinity)", word, re.IGNORECASE):
                hint = "; numbers must be finite (what has no limit leaves the attribute out)"
            elif "," in word:
                hint = "; the decimal sign is a point, and spaces part the numbers"
            raise self.error(element, f"{place}: {_quoted(word)} is not a number{hint}")
        value = float(word)
        if not math.isfinite(value) or abs(value) > at_most:
            raise self.error(element, f"{place}: {_quoted(word)} is too large (at most {min(at_most, 1.7e308):g})")
        return value


# --- meshes -----------------------------------------------------------------------------------------------------------

_DRAWN = (".stl", ".obj", ".dae")


def _find_mesh(filename: str, urdf_path: Path) -> tuple[Path | None, str]:
    """Where a mesh lies, and what is wrong with it ("" if nothing is)."""
    candidates, problem = _mesh_candidates(filename, Path(os.path.abspath(urdf_path)).parent)
    if problem:
        return None, problem
    for candidate in candidates:
        try:
            if candidate.is_file():
                return candidate, _mesh_problem(candidate)
        except (OSError, ValueError):  # a name too long for the file system, or with letters it can't hold
            continue
    return None, "is not there"


def _mesh_candidates(filename: str, folder: Path) -> tuple[list[Path], str]:
    scheme, separator, rest = filename.partition("://")
    if not separator:
        return [folder / filename], ""
    if scheme == "file":
        return [Path(urllib.parse.unquote(rest))], ""
    if scheme in ("package", "model"):
        package, _, inside = rest.partition("/")
        above = (folder, *folder.parents)
        return [parent / inside for parent in above if parent.name == package] + [
            parent / package / inside for parent in above
        ], ""
    return [], f"is not fetched, as only files are read ({_cut(scheme)}://)"


def _mesh_problem(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix not in _DRAWN:
        return f"is of a kind that PyBullet doesn't draw ({', '.join(_DRAWN)} it does)"
    if suffix == ".stl" and _is_ascii_stl(path):
        return "is a text STL, which PyBullet loads but doesn't draw; save it as a binary STL"
    return ""


def _is_ascii_stl(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(1024)
    if not head.lstrip().lower().startswith(b"solid"):
        return False
    # Some binary files start with "solid" too; their size follows from the number of triangles.
    return len(head) < 84 or path.stat().st_size != 84 + 50 * int.from_bytes(head[80:84], "little")


# --- words ------------------------------------------------------------------------------------------------------------


def _close(name: str, known: Collection[str]) -> str | None:
    near = difflib.get_close_matches(_cut(name), known, n=1, cutoff=0.75)
    return near[0] if near else None


def _cut(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def _quoted(text: str) -> str:
    return f'"{_cut(text)}"'


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:20])
    return shown if len(names) <= 20 else f"{shown} and {len(names) - 20} more"
