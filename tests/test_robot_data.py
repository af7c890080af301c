"""The data folders under robots/ are complete, physical, honest about their sources, and right about kinematics.

These tests read the files themselves (TOML, XML, OBJ) and ask PyBullet, never ik_sim: what they prove does not depend
on the reader that users get.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pybullet
import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = sorted(path.parent for path in (ROOT / "robots").glob("*/robot.toml"))
NAMES = [folder.name for folder in FOLDERS]

UR5_DH = [
    # a [m], alpha [quarter turns], d [m]: the published table
    (0.0, 1, 0.089159),
    (-0.425, 0, 0.0),
    (-0.39225, 0, 0.0),
    (0.0, 1, 0.10915),
    (0.0, -1, 0.09465),
    (0.0, 0, 0.0823),
]
IIWA_DH = [
    (0.0, -1, 0.36),
    (0.0, 1, 0.0),
    (0.0, -1, 0.42),
    (0.0, 1, 0.0),
    (0.0, -1, 0.40),
    (0.0, 1, 0.0),
    (0.0, 0, 0.126),
]
# The table counts joint 4 the other way round than the maker's models (and our URDF).
IIWA_SIGNS = np.array([1.0, 1.0, 1.0, -1.0, 1.0, 1.0, 1.0])

# Poses computed elsewhere from the published tables: robot, joints of the table, rotation row by row, position [m].
KNOWN_POSES = {
    "U1": (
        "ur5",
        [1.103, -0.107, -0.114, -1.226, 1.333, -1.995],
        [
            [-0.770244342562, 0.618339467026, 0.156140821917],
            [-0.637539997133, -0.740291926419, -0.213332172292],
            [-0.016321911865, -0.263863917952, 0.964421810203],
        ],
        [-0.295196185084, -0.869373371723, 0.288215097098],
    ),
    "U5": (
        "ur5",
        [0.4, -1.1, 1.3, -0.7, 0.9, -0.5],
        [
            [0.496937491809, 0.774656103394, -0.391102353240],
            [-0.536248375594, -0.080213612768, -0.840240118061],
            [-0.682268868488, 0.627274818402, 0.375546925551],
        ],
        [-0.563123399255, -0.412132403297, 0.337838405512],
    ),
    "K1": (
        "iiwa14",
        [-0.745, 1.655, -1.686, -0.019, 1.003, -2.025, -0.505],
        [
            [0.535894915278, 0.839042301874, 0.093939637242],
            [-0.654868095279, 0.342858246791, 0.673495360335],
            [0.532883118108, -0.422440810379, 0.733198025203],
        ],
        [0.617484064261, -0.463458877627, 0.382553111005],
    ),
    "K5": (
        "iiwa14",
        [0.3, 0.7, -0.4, 1.1, 0.5, -0.9, 0.2],
        [
            [0.675344842662, -0.032400604799, 0.736790027280],
            [0.298463049320, 0.925576252085, -0.232869941742],
            [-0.674410225071, 0.377172112417, 0.634753531644],
        ],
        [0.743925901876, 0.026753135911, 0.688460375138],
    ),
    "UR5 zero": ("ur5", [0.0] * 6, [[1, 0, 0], [0, 0, -1], [0, 1, 0]], [-0.81725, -0.19145, -0.005491]),
    "iiwa zero": ("iiwa14", [0.0] * 7, np.eye(3).tolist(), [0.0, 0.0, 1.306]),
    "planar2 zero": ("planar2", [0.0] * 2, np.eye(3).tolist(), [0.9, 0.0, 0.0]),
    "planar3 bent": ("planar3", [np.pi / 2] * 3, [[0, 1, 0], [-1, 0, 0], [0, 0, 1]], [-0.3, 0.2, 0.0]),
}


def description(name: str) -> dict:
    """robot.toml of a robot, as read."""
    return tomllib.loads((ROOT / "robots" / name / "robot.toml").read_text(encoding="utf-8"))


def urdf(name: str) -> ET.Element:
    """Root element of a robot's URDF."""
    return ET.parse(ROOT / "robots" / name / description(name)["urdf"]).getroot()


def numbers(element: ET.Element | None, key: str, default: str = "0 0 0") -> np.ndarray:
    """Numbers of a space-separated XML attribute."""
    return np.array((default if element is None else element.get(key, default)).split(), dtype=float)


class Arm:
    """A robot loaded into its own PyBullet session."""

    def __init__(self, name: str, flags: int = 0) -> None:
        self.client = pybullet.connect(pybullet.DIRECT)
        folder = ROOT / "robots" / name
        # Bullet keeps files by path; a regenerated mesh or URDF must be read again.
        pybullet.setPhysicsEngineParameter(enableFileCaching=0, physicsClientId=self.client)
        self.body = pybullet.loadURDF(
            str(folder / description(name)["urdf"]), useFixedBase=True, flags=flags, physicsClientId=self.client
        )
        joints = [
            pybullet.getJointInfo(self.body, j, physicsClientId=self.client)
            for j in range(pybullet.getNumJoints(self.body, physicsClientId=self.client))
        ]
        self.moving = [info[0] for info in joints if info[2] == pybullet.JOINT_REVOLUTE]
        self.links = {info[12].decode(): info[0] for info in joints}
        self.lower = np.array([joints[j][8] for j in self.moving])
        self.upper = np.array([joints[j][9] for j in self.moving])

    def move(self, q: np.ndarray) -> None:
        """Put the arm at q [rad], without physics."""
        for joint, value in zip(self.moving, q, strict=True):
            pybullet.resetJointState(self.body, joint, float(value), physicsClientId=self.client)

    def tool_pose(self, link: str, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rotation (3, 3) and position (3,) of a link's frame in the base."""
        self.move(q)
        state = pybullet.getLinkState(
            self.body, self.links[link], computeForwardKinematics=True, physicsClientId=self.client
        )
        return np.array(pybullet.getMatrixFromQuaternion(state[5])).reshape(3, 3), np.array(state[4])


@pytest.fixture
def arm(request: pytest.FixtureRequest) -> Iterator[Arm]:
    """The robot named by the test's `name` parameter."""
    loaded = Arm(request.getfixturevalue("name"), flags=pybullet.URDF_USE_SELF_COLLISION)
    yield loaded
    pybullet.disconnect(loaded.client)


def table_pose(table: list[tuple[float, int, float]], q: np.ndarray) -> np.ndarray:
    """Pose (4, 4) of a standard Denavit-Hartenberg table."""
    T = np.eye(4)
    for (a, quarter, d), angle in zip(table, q, strict=True):
        c, s, ca, sa = np.cos(angle), np.sin(angle), float(quarter == 0), float(quarter)
        T = T @ np.array([[c, -s * ca, s * sa, a * c], [s, c * ca, -c * sa, a * s], [0, sa, ca, d], [0, 0, 0, 1]])
    return T


def table_to_urdf(name: str, q: np.ndarray) -> np.ndarray:
    """Joints as the published table counts them, turned into joints of our URDF."""
    return q * IIWA_SIGNS if name == "iiwa14" else q


# ------------------------------------------------------------------------------------------------------------ the files


def test_the_four_promised_robots_are_there() -> None:
    assert {"ur5", "iiwa14", "planar2", "planar3"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_description_names_files_and_links_that_exist(name: str) -> None:
    robot = description(name)
    links = {link.get("name") for link in urdf(name).findall("link")}
    assert robot["name"] == name
    assert urdf(name).get("name") == name
    assert robot["title"].strip()
    assert {robot["base_link"], robot["tool_link"]} <= links


@pytest.mark.parametrize("name", NAMES)
def test_every_number_has_a_source_and_the_folder_a_licence(name: str) -> None:
    source = description(name)["source"]
    assert set(source) == {"kinematics", "dynamics", "limits", "licence"}
    assert all(len(text) > 20 for text in source.values())
    licence = (ROOT / "robots" / name / "LICENSE").read_text(encoding="utf-8")
    assert "BSD-3-Clause" in source["licence"]
    assert "BSD 3-Clause License" in licence
    assert "SPDX-License-Identifier: BSD-3-Clause" in (ROOT / "robots" / name / f"{name}.urdf").read_text("utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_every_mesh_is_a_small_file_inside_the_folder(name: str) -> None:
    folder = (ROOT / "robots" / name).resolve()
    used = [mesh.get("filename", "") for mesh in urdf(name).iter("mesh")]
    assert used
    for filename in used:
        path = (folder / filename).resolve()
        assert path.is_file(), filename
        assert path.is_relative_to(folder), filename
        material = path.with_name(path.read_text("ascii").split("\n", 1)[0].removeprefix("mtllib "))
        texture = material.read_text("ascii").split("map_Kd ")[1].split()[0]
        assert (material.parent / texture).read_bytes().startswith(b"\x89PNG")
    assert {path.name for path in (folder / "meshes").glob("*.obj")} == {Path(filename).name for filename in used}
    # Rendering time grows with the triangles, and the repository with every version of the files.
    assert sum(path.stat().st_size for path in (folder / "meshes").iterdir()) < 1.5e6


@pytest.mark.parametrize("name", NAMES)
def test_mesh_normals_are_unit_vectors_that_point_out_of_their_faces(name: str) -> None:
    for path in (ROOT / "robots" / name / "meshes").glob("*.obj"):
        rows = [line.split() for line in path.read_text("ascii").splitlines()]
        vertices = np.array([row[1:] for row in rows if row[0] == "v"], dtype=float)
        normals = np.array([row[1:] for row in rows if row[0] == "vn"], dtype=float)
        # Three digits are written.
        np.testing.assert_allclose(np.linalg.norm(normals, axis=1), 1.0, atol=2e-3)
        agree = []
        for row in rows:
            if row[0] != "f":
                continue
            corner = np.array([[int(i) for i in word.split("/")] for word in row[1:]]) - 1
            p = vertices[corner[:, 0]]
            # Newell's sum: twice the area times the normal, for any flat or nearly flat polygon.
            area = np.cross(p - p[0], np.roll(p, -1, axis=0) - p[0]).sum(axis=0)
            if np.linalg.norm(area) > 1e-8:
                agree.append(area @ normals[corner[:, 2]].sum(axis=0) > 0.0)
        # Coordinates are written to 0.01 mm, which may turn a sliver over; a surface inside out would turn thousands.
        assert np.mean(agree) > 0.999, path.name


@pytest.mark.parametrize("name", NAMES)
def test_every_link_is_a_body_that_can_exist(name: str) -> None:
    for link in urdf(name).findall("link"):
        inertial = link.find("inertial")
        assert inertial is not None, link.get("name")
        mass, entry = inertial.find("mass"), inertial.find("inertia")
        assert mass is not None, link.get("name")
        assert entry is not None, link.get("name")
        xx, xy, xz, yy, yz, zz = (float(entry.get(key, "nan")) for key in ("ixx", "ixy", "ixz", "iyy", "iyz", "izz"))
        moments = np.linalg.eigvalsh([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
        assert float(mass.get("value", "nan")) > 0.0
        assert moments[0] > 0.0, link.get("name")
        # I1 + I2 >= I3 for every body; equality is a flat plate.
        assert moments[0] + moments[1] >= moments[2] * (1 - 1e-9), link.get("name")
        # The root of I/m is a length of the body's size: a wrong unit (mm, g) would leave this range.
        gyration = np.sqrt(moments / float(mass.get("value", "nan")))
        assert gyration[0] > 0.005, link.get("name")
        assert gyration[2] < 0.3, link.get("name")


@pytest.mark.parametrize("name", ["ur5", "iiwa14"])
def test_the_masses_add_up_to_the_data_sheet(name: str) -> None:
    total = sum(float(mass.get("value", "nan")) for mass in urdf(name).iter("mass"))
    # 18.4 kg and 29.9 kg, printed to 0.1 kg.
    assert total == pytest.approx({"ur5": 18.4, "iiwa14": 29.9}[name], abs=0.05)


@pytest.mark.parametrize("name", NAMES)
def test_every_shape_has_a_material_and_no_tool_unfriendly_element(name: str) -> None:
    root = urdf(name)
    named = {material.get("name") for material in root.findall("material")}
    for visual in root.iter("visual"):
        material = visual.find("material")
        # Without one, PyBullet's hardware renderer picks a random colour.
        assert material is not None
        assert material.get("name") in named
    kinds = {shape.tag for geometry in root.iter("geometry") for shape in geometry}
    assert kinds <= {"mesh", "box", "cylinder", "sphere"}  # <capsule> stops yourdfpy
    assert not [mesh for collision in root.iter("collision") for mesh in collision.iter("mesh")]


@pytest.mark.parametrize("name", NAMES)
def test_limits_are_finite_and_home_is_well_inside(name: str) -> None:
    home = np.array(description(name)["home"])
    joints = [joint for joint in urdf(name).findall("joint") if joint.get("type") == "revolute"]
    assert len(home) == len(joints)
    for q, joint in zip(home, joints, strict=True):
        limit = joint.find("limit")
        assert limit is not None
        lower, upper, effort, velocity = (float(limit.get(k, "nan")) for k in ("lower", "upper", "effort", "velocity"))
        assert lower + 0.1 < q < upper - 0.1
        assert effort > 0.0
        assert velocity > 0.0


# ------------------------------------------------------------------------------------------------------- the kinematics


@pytest.mark.parametrize("case", KNOWN_POSES)
def test_bullet_agrees_with_known_poses(case: str) -> None:
    name, q, R, p = KNOWN_POSES[case]
    loaded = Arm(name)
    try:
        R_bullet, p_bullet = loaded.tool_pose(description(name)["tool_link"], table_to_urdf(name, np.array(q)))
    finally:
        pybullet.disconnect(loaded.client)
    # Bullet's own rounding is 3e-8 to 6e-8 m.
    np.testing.assert_allclose(p_bullet, p, atol=1e-6)
    np.testing.assert_allclose(R_bullet, R, atol=1e-6)


@pytest.mark.parametrize(("name", "table"), [("ur5", UR5_DH), ("iiwa14", IIWA_DH)])
def test_bullet_agrees_with_the_published_table_everywhere(name: str, table: list[tuple[float, int, float]]) -> None:
    rng = np.random.default_rng(1)
    loaded = Arm(name)
    try:
        for _ in range(50):
            q = rng.uniform(-np.pi, np.pi, len(table))
            T = table_pose(table, q)
            R, p = loaded.tool_pose(description(name)["tool_link"], table_to_urdf(name, q))
            np.testing.assert_allclose(p, T[:3, 3], atol=1e-6)
            np.testing.assert_allclose(R, T[:3, :3], atol=1e-6)
    finally:
        pybullet.disconnect(loaded.client)


# -------------------------------------------------------------------------------------------------------- the collision


@pytest.mark.parametrize("name", NAMES)
def test_links_touch_nothing_at_home_nor_anywhere_near(name: str, arm: Arm) -> None:
    home = np.array(description(name)["home"])
    rng = np.random.default_rng(2)
    for spread in (0.0, *[0.3] * 20):
        arm.move(np.clip(home + rng.uniform(-spread, spread, len(home)), arm.lower, arm.upper))
        for a, b in combinations([-1, *arm.links.values()], 2):
            touching = pybullet.getClosestPoints(
                arm.body, arm.body, 0.0, linkIndexA=a, linkIndexB=b, physicsClientId=arm.client
            )
            assert not touching, f"links {a} and {b}, {min(point[8] for point in touching):.4f} m"


@pytest.mark.parametrize("name", NAMES)
def test_neighbouring_links_never_touch_whatever_their_joint_does(name: str, arm: Arm) -> None:
    links = [-1, *arm.moving]
    for i, (a, b) in enumerate(pairwise(links)):
        lower, upper = max(arm.lower[i], -np.pi), min(arm.upper[i], np.pi)
        # The UR5's upper arm and forearm fold onto each other near half a turn, as the real ones do.
        reach = 0.8 if (name, i) == ("ur5", 2) else 1.0
        for angle in np.linspace(reach * lower, reach * upper, 25):
            q = np.zeros(len(arm.moving))
            q[i] = angle
            arm.move(q)
            touching = pybullet.getClosestPoints(
                arm.body, arm.body, 0.0, linkIndexA=a, linkIndexB=b, physicsClientId=arm.client
            )
            assert not touching, f"joint {i} at {angle:.2f} rad, {min(point[8] for point in touching):.4f} m"


# ---------------------------------------------------------------------------------------------------------- the meshes


@pytest.mark.parametrize("name", NAMES)
def test_meshes_are_what_their_script_makes_byte_for_byte(name: str, tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "scripts" / "make_meshes.py", "--out", tmp_path, name], check=True)
    kept, made = ROOT / "robots" / name / "meshes", tmp_path / name / "meshes"
    assert {path.name for path in made.iterdir()} == {path.name for path in kept.iterdir()}
    for path in made.iterdir():
        assert path.read_bytes() == (kept / path.name).read_bytes(), path.name


def test_mesh_script_refuses_a_robot_it_does_not_know(tmp_path: Path) -> None:
    command = [sys.executable, ROOT / "scripts" / "make_meshes.py", "--out", tmp_path, "ur55"]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 2
    assert "known: ur5, iiwa14" in finished.stderr
    assert not list(tmp_path.iterdir())
