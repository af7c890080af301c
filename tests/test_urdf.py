"""URDF files are honoured or refused in plain words, and the chains cut from them move as PyBullet's bodies do."""

from __future__ import annotations

import json
import math
import pickle
import shutil
import struct
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pybullet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from ik_sim import se3
from ik_sim.errors import IkSimError, InvalidArgumentError, UnknownNameError, UrdfError
from ik_sim.urdf import MAX_BYTES, MAX_DEPTH, UrdfModel, UrdfWarning, read_urdf

FILES = Path(__file__).parent / "data" / "urdf"

PYBULLET = 1e-6
"""[m] and [-]: PyBullet's own link poses repeat to about 1e-7 (it parses and stores part of a body in single
precision), so nothing finer can be asked of the comparison."""
ROUNDING = 1e-12
"""A few metres, a few products of matrices in double precision."""


# --- small files, written on the spot ---


Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a file's body (the links `a`, `b` and `c` are there already) and return its path."""

    def write(body: str, *, links: str = "abc", name: str = "small.urdf") -> Path:
        path = tmp_path / name
        lines = "\n".join(f'<link name="{link}"/>' for link in links)
        path.write_text(f'<robot name="small">\n{lines}\n{body}\n</robot>', encoding="utf-8")
        return path

    return write


LIMIT = '<limit lower="-1" upper="1" effort="5" velocity="2"/>'


def hinge(name: str, parent: str, child: str, inside: str = LIMIT, kind: str = "revolute") -> str:
    """One joint on one line, so that messages can be checked for it."""
    return f'<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>{inside}</joint>'


def ab(inside: str, kind: str = "revolute") -> str:
    return hinge("j", "a", "b", inside, kind)


TWO = hinge("j1", "a", "b") + "\n" + hinge("j2", "b", "c")


# --- the judge: PyBullet's forward kinematics ---


@pytest.fixture(scope="module")
def client() -> Iterator[int]:
    """A physics client without a window, which reads every file anew."""
    number = pybullet.connect(pybullet.DIRECT)
    pybullet.setPhysicsEngineParameter(enableFileCaching=0, physicsClientId=number)
    yield number
    pybullet.disconnect(number)


def pybullet_poses(
    client: int, path: Path, base_link: str, tool_link: str, postures: list[dict[str, float]]
) -> np.ndarray[Any, Any]:
    """T_base_tool by PyBullet for each posture; joints that it doesn't name stand at 0."""
    body = pybullet.loadURDF(str(path), useFixedBase=True, physicsClientId=client)
    try:
        links = {pybullet.getBodyInfo(body, client)[0].decode(): -1}
        joints: dict[str, int] = {}
        for index in range(pybullet.getNumJoints(body, client)):
            info = pybullet.getJointInfo(body, index, client)
            joints[info[1].decode()], links[info[12].decode()] = index, index

        def pose(link: str) -> np.ndarray[Any, Any]:
            if links[link] < 0:
                p, quat_xyzw = pybullet.getBasePositionAndOrientation(body, client)
                com = pybullet.getDynamicsInfo(body, -1, client)[3:5]  # the base's pose is that of its centre of mass
                return matrix(p, quat_xyzw) @ se3.inverse(matrix(*com))
            state = pybullet.getLinkState(body, links[link], computeForwardKinematics=True, physicsClientId=client)
            return matrix(state[4], state[5])  # fields 0 and 1 would be the centre of mass

        poses: list[np.ndarray[Any, Any]] = []
        for posture in postures:
            for name, index in joints.items():
                pybullet.resetJointState(body, index, posture.get(name, 0.0), physicsClientId=client)
            poses.append(se3.inverse(pose(base_link)) @ pose(tool_link))
        return np.array(poses)
    finally:
        pybullet.removeBody(body, client)


def matrix(p: Any, quat_xyzw: Any) -> np.ndarray[Any, Any]:
    return se3.transform(se3.quat_xyzw_to_matrix(np.array(quat_xyzw)), np.array(p))


@pytest.mark.parametrize(
    ("file", "base_link", "tool_link"),
    [
        ("rail_arm.urdf", "floor", "tool"),
        ("rail_arm.urdf", "floor", "camera"),
        ("rail_arm.urdf", "floor", "lid"),
        ("rail_arm.urdf", "pedestal", "forearm"),
        ("rail_arm.urdf", "carriage", "hand"),
        ("linkage.urdf", "base", "palm"),
        ("linkage.urdf", "base", "finger_1"),
        ("linkage.urdf", "a", "palm"),
        ("guarded.urdf", "base", "three"),
    ],
)
@pytest.mark.filterwarnings("ignore::ik_sim.urdf.UrdfWarning")  # linkage from "a": its master stays outside
def test_a_chain_moves_as_the_link_frames_of_pybullet_do(
    client: int, file: str, base_link: str, tool_link: str
) -> None:
    chain = read_urdf(FILES / file).chain(base_link, tool_link)
    held = {"beta": 0.2, "gamma": 0.6, "slide": 0.05} if base_link == "a" else {}  # alpha at 0
    q = chain.random_q(np.random.default_rng(1), 20)
    postures = [held | chain.all_joint_positions(row) for row in q]
    T = pybullet_poses(client, FILES / file, base_link, tool_link, postures)
    assert_allclose(chain.fk_batch(q), T, atol=PYBULLET)


@pytest.mark.parametrize("name", ["ur5", "iiwa14", "planar2", "planar3"])
def test_the_robots_that_come_along_move_as_in_pybullet(client: int, name: str) -> None:
    path = FILES.parents[2] / "robots" / name / f"{name}.urdf"
    chain = read_urdf(path).chain()
    q = chain.random_q(np.random.default_rng(2), 50)
    T = pybullet_poses(client, path, chain.base_link, chain.tool_link, [chain.all_joint_positions(row) for row in q])
    assert_allclose(chain.fk_batch(q), T, atol=PYBULLET)


def test_the_chain_ends_at_the_link_frame_and_not_at_the_centre_of_mass(client: int) -> None:
    q = [0.1, 0.2, -0.3, 0.4]
    chain = read_urdf(FILES / "rail_arm.urdf").chain(tool_link="hand")
    (T,) = pybullet_poses(client, FILES / "rail_arm.urdf", "floor", "hand", [chain.all_joint_positions(q)])
    assert_allclose(chain.fk(q), T, atol=PYBULLET)
    inertial = read_urdf(FILES / "rail_arm.urdf").link("hand").inertial
    assert inertial is not None
    assert_array_equal(inertial.T_link_com[:3, 3], [0.0, 0.03, 0.04])


@st.composite
def drawn_robots(draw: st.DrawFn) -> tuple[str, str, str, dict[str, float], dict[str, tuple[str, float, float]]]:
    """A random tree: its text, base and tool link, positions of the free joints, and who mimics whom."""
    number = st.floats(-1.0, 1.0).map(lambda x: round(x, 6))
    quarter = st.sampled_from([0.0, 0.5 * math.pi, -0.5 * math.pi, math.pi])
    parents: list[int] = []
    kinds: list[str] = []
    values: dict[str, float] = {}
    mimics: dict[str, tuple[str, float, float]] = {}
    body = '<link name="l0"/>'
    for i in range(1, draw(st.integers(2, 9))):
        parents.append(draw(st.integers(max(0, i - 3), i - 1)))
        kind = draw(st.sampled_from(["revolute", "revolute", "continuous", "prismatic", "fixed"]))
        if i == 1:
            kind = "revolute"
        kinds.append(kind)
        xyz = " ".join(repr(draw(number)) for _ in range(3))
        rpy = " ".join(repr(draw(st.one_of(quarter, number))) for _ in range(3))
        axis = np.array([draw(number) for _ in range(3)])
        axis = axis / np.linalg.norm(axis) if np.linalg.norm(axis) > 0.1 else np.array([0.0, 0.0, -1.0])
        mimic = ""
        if kind != "fixed":
            followers = [name for name in (*values, *mimics)]
            if followers and draw(st.integers(0, 3)) == 0:
                rule = (draw(st.sampled_from(followers)), draw(number), draw(number))
                mimics[f"j{i}"] = rule
                mimic = f'<mimic joint="{rule[0]}" multiplier="{rule[1]!r}" offset="{rule[2]!r}"/>'
            else:
                values[f"j{i}"] = draw(number)
        com = " ".join(repr(draw(number)) for _ in range(3))
        body += (
            f'<joint name="j{i}" type="{kind}"><parent link="l{parents[-1]}"/><child link="l{i}"/>'
            f'<origin xyz="{xyz}" rpy="{rpy}"/><axis xyz="{" ".join(repr(float(x)) for x in axis)}"/>'
            f'<limit lower="-90" upper="90" effort="9" velocity="9"/>{mimic}</joint>\n'
            f'<link name="l{i}"><inertial><origin xyz="{com}"/><mass value="1"/>'
            f'<inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial></link>\n'
        )
    tool = draw(st.integers(1, len(parents)))
    above = [tool]
    while above[-1] != 0:
        above.append(parents[above[-1] - 1])
    base = draw(st.sampled_from(above[1:]))
    return f'<robot name="drawn">{body}</robot>', f"l{base}", f"l{tool}", values, mimics


def free_joints_between(model: UrdfModel, base_link: str, tool_link: str) -> set[str]:
    above = {joint.child: joint for joint in model.joints}
    names: set[str] = set()
    while tool_link != base_link:
        names.add(above[tool_link].name)
        tool_link = above[tool_link].parent
    return names


@given(drawn=drawn_robots())
@settings(max_examples=60)
def test_random_trees_of_joints_move_as_in_pybullet(
    client: int, drawn: tuple[str, str, str, dict[str, float], dict[str, tuple[str, float, float]]]
) -> None:
    text, base_link, tool_link, values, mimics = drawn
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / "drawn.urdf"
        path.write_text(text)
        model = read_urdf(path)
        try:
            chain = model.chain(base_link, tool_link)
        except InvalidArgumentError:  # nothing moves between them, or only what mimics a joint elsewhere
            assert not free_joints_between(model, base_link, tool_link) & values.keys()
            return
        free = {name: value if name in chain.joint_names else 0.0 for name, value in values.items()}

        def position(name: str) -> float:
            if name in free:
                return free[name]
            master, multiplier, offset = mimics[name]
            return multiplier * position(master) + offset

        positions = {name: position(name) for name in (*values, *mimics)}
        (T,) = pybullet_poses(client, path, base_link, tool_link, [positions])
    q = np.array([values[name] for name in chain.joint_names])
    assert_allclose(chain.fk(q), T, atol=PYBULLET)


# --- what is honoured ---


def test_links_joints_and_their_numbers_are_read() -> None:
    model = read_urdf(FILES / "rail_arm.urdf")
    assert (model.name, model.root, len(model.links), len(model.joints)) == ("rail_arm", "floor", 10, 9)
    rail = model.joint("rail")
    assert (rail.kind, rail.parent, rail.child, rail.line) == ("prismatic", "pedestal", "carriage", 24)
    assert (rail.lower, rail.upper, rail.effort, rail.velocity) == (-0.5, 0.7, 400.0, 0.8)
    assert (rail.damping, rail.friction) == (12.5, 0.5)
    upper_arm = model.link("upper_arm").inertial
    assert upper_arm is not None
    assert upper_arm.mass == 2.0
    assert upper_arm.inertia is not None
    assert_array_equal(upper_arm.inertia, [[0.01, 0.001, 0.0], [0.001, 0.02, 0.0], [0.0, 0.0, 0.02]])
    assert [shape.kind for shape in model.link("carriage").visuals] == ["box"]
    assert model.link("carriage").collisions[0].size == (0.1, 0.2, 0.06)
    assert model.link("upper_arm").visuals[0].size == (0.03, 0.3)
    assert model.link("forearm").visuals[0].size == (0.04,)
    assert model.link("floor").inertial is None
    assert model.warnings == ()


def test_quarter_turns_give_exact_matrices_with_sixteen_digits_and_with_eleven(write: Write) -> None:
    for quarter in ("1.5707963267948966", "1.57079632679"):
        joint = read_urdf(write(ab(f'<origin rpy="0 {quarter} -{quarter}"/>{LIMIT}'), links="ab"))
        assert_array_equal(
            joint.joint("j").T_parent_joint[:3, :3], [[0.0, 1.0, 0.0], [0.0, 0.0, -1.0], [-1.0, 0.0, 0.0]]
        )


def test_rpy_turns_about_fixed_axes_roll_first(write: Write) -> None:
    joint = read_urdf(write(ab(f'<origin rpy="0.1 0.2 0.3"/>{LIMIT}'), links="ab")).joint("j")
    x, y, z = np.eye(3)
    R = se3.rotation_exp(0.3 * z) @ se3.rotation_exp(0.2 * y) @ se3.rotation_exp(0.1 * x)
    assert_allclose(joint.T_parent_joint[:3, :3], R, atol=ROUNDING)


def test_a_joint_without_an_axis_turns_about_x_and_without_an_origin_sits_on_its_parent(write: Write) -> None:
    joint = read_urdf(write(hinge("j", "a", "b"), links="ab")).joint("j")
    assert_array_equal(joint.axis, [1.0, 0.0, 0.0])
    assert_array_equal(joint.T_parent_joint, np.eye(4))


def test_an_axis_of_another_length_is_normalised_and_reported(write: Write) -> None:
    model = read_urdf(write(ab(f'<axis xyz="0 3 -4"/>{LIMIT}'), links="ab"))
    assert_allclose(model.joint("j").axis, [0.0, 0.6, -0.8], atol=1e-15)  # one division
    assert model.warnings == ("line 4: joint 'j': axis has length 5; it is taken as a direction of length 1",)


def test_the_axis_of_a_fixed_joint_does_not_matter(write: Write) -> None:
    model = read_urdf(write(ab('<axis xyz="0 0 0"/>', kind="fixed") + hinge("k", "b", "c")))
    assert model.chain().n == 1


def test_a_continuous_joint_has_no_limits(write: Write) -> None:
    path = write(hinge("j1", "a", "b", "", "continuous") + "\n" + hinge("j2", "b", "c", LIMIT, "continuous"))
    model = read_urdf(path)
    chain = model.chain()
    assert_array_equal(chain.lower, [-np.inf, -np.inf])
    assert_array_equal(chain.upper, [np.inf, np.inf])
    assert_array_equal(chain.velocity_limits, [np.inf, 2.0])
    assert "line 6: joint 'j2': is continuous, so its lower and upper limit are ignored, as URDF says" in model.warnings
    assert "no effort limit given, so none is in force: j1" in model.warnings


def test_soft_limits_stand_beside_the_hard_ones_which_stay_in_force() -> None:
    model = read_urdf(FILES / "guarded.urdf")
    chain = model.chain()
    assert chain.within_limits([0.3, 1.2, 1.0])  # beyond the soft limit of "kept", 0.9
    assert_array_equal(chain.upper, [2.0, 2.0, 1.5])
    row = model.joint_table()[1]
    assert (row["name"], row["lower"], row["upper"]) == ("kept", -2.0, 2.0)
    assert (row["soft_lower"], row["soft_upper"]) == (-0.7, 0.9)


def test_the_joint_table_is_json_and_says_none_where_there_is_no_limit() -> None:
    rows = json.loads(json.dumps(read_urdf(FILES / "rail_arm.urdf").joint_table(), allow_nan=False))
    assert [row["name"] for row in rows] == ["wrist", "lid_hinge", "rail", "turn", "elbow"]
    assert {key: rows[3][key] for key in ("type", "lower", "upper", "velocity", "effort", "mimic")} == {
        "type": "continuous", "lower": None, "upper": None, "velocity": 2.5, "effort": 60.0, "mimic": None,
    }  # fmt: skip


def test_motors_without_effort_or_speed_are_named() -> None:
    assert read_urdf(FILES / "guarded.urdf").warnings == (
        "effort limit 0, with which a joint can't move: kept",
        "no effort limit given, so none is in force: open",
        "velocity limit 0, with which a joint can't move: kept",
        "no velocity limit given, so none is in force: open",
    )


def test_limits_that_look_like_degrees_are_reported(write: Write) -> None:
    limit = '<limit lower="-170" upper="170" effort="5" velocity="2"/>'
    (warning,) = read_urdf(write(ab(limit), links="ab")).warnings
    assert warning == "line 4: joint 'j': limits -170 to 170 look like degrees; URDF wants radians"


def test_one_missing_limit_is_zero_as_the_format_says(write: Write) -> None:
    model = read_urdf(write(ab('<limit upper="1.2" effort="5" velocity="2"/>'), links="ab"))
    assert (model.joint("j").lower, model.joint("j").upper) == (0.0, 1.2)
    assert model.warnings == ("line 4: joint 'j': has no lower limit, which URDF reads as 0",)


def test_a_joint_whose_limits_leave_no_room_is_reported(write: Write) -> None:
    limit = '<limit lower="0.5" upper="0.5" effort="5" velocity="2"/>'
    model = read_urdf(write(ab(limit), links="ab"))
    assert model.warnings == ("line 4: joint 'j': lower and upper limit are both 0.5, so it can't move",)
    assert_array_equal(model.chain().q_middle, [0.5])


def test_elements_that_say_nothing_about_links_and_joints_are_skipped(write: Write) -> None:
    extras = '<gazebo><plugin a="${x}"><link/><joint/></plugin></gazebo><transmission><joint name="j"/></transmission>'
    inside = hinge("j3", "b", "d", LIMIT.replace("/>", ' acceleration="4"/>') + "<drake:controller/><calibration/>")
    link = '<link name="d"><contact/><visual><geometry><sphere radius="0"/></geometry></visual></link>'
    model = read_urdf(write(f"{extras}<sensor:camera/><drake:joint/><point/>{TWO}{link}{inside}"))
    assert model.movable == ("j1", "j2", "j3")
    assert model.warnings == ()


def test_what_xacro_leaves_behind_in_a_finished_file_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "expanded.urdf"
    path.write_text('<robot name="r" xmlns:xacro="http://ros.org/wiki/xacro"><link name="a"/></robot>')
    assert read_urdf(path).root == "a"


def test_a_robot_without_a_name_is_called_after_its_file(tmp_path: Path) -> None:
    path = tmp_path / "nameless.urdf"
    path.write_text('<robot><link name="a"/></robot>')
    model = read_urdf(path)
    assert model.name == "nameless"
    assert model.warnings == ("line 1: <robot> has no name; 'nameless' is used",)


def test_a_model_survives_pickling_and_its_arrays_are_read_only() -> None:
    model = read_urdf(FILES / "linkage.urdf")
    again = pickle.loads(pickle.dumps(model))
    T = again.chain(tool_link="palm").fk([0.1, 0.2])
    assert_array_equal(T, model.chain(tool_link="palm").fk([0.1, 0.2]))
    with pytest.raises(ValueError, match="read-only"):
        model.joint("alpha").T_parent_joint[0, 0] = 2.0
    with pytest.raises(ValueError, match="read-only"):
        model.joint("alpha").axis[0] = 2.0


# --- chains ---


def test_the_root_need_not_be_called_base_link_and_the_tips_are_offered_branch_by_branch() -> None:
    model = read_urdf(FILES / "rail_arm.urdf")
    assert model.root == "floor"
    assert model.tips == ("lid", "camera", "tool")
    with pytest.raises(InvalidArgumentError, match=r"must be given.*3 tips below 'floor': lid, camera, tool"):
        model.chain()
    chain = model.chain(tool_link="tool")
    assert (chain.base_link, chain.tool_link) == ("floor", "tool")
    assert chain.joint_names == ("rail", "turn", "elbow", "wrist")


def test_the_only_tip_below_the_base_is_the_tool() -> None:
    assert read_urdf(FILES / "rail_arm.urdf").chain(base_link="forearm").tool_link == "tool"


def test_fixed_joints_before_between_and_after_are_part_of_the_geometry() -> None:
    # All at zero, by hand: floor, 0.2 up; yaw 0.7; rail turned so that it runs along -x; and so on up to the bracket.
    model = read_urdf(FILES / "rail_arm.urdf")
    yaw = se3.rotation_exp(np.array([0.0, 0.0, 0.7]))
    p_bracket = np.array([0.0, 0.0, 0.2]) + yaw @ (np.array([0.05, 0.0, 0.3]) + np.array([-0.1, 0.04, 0.0]))
    p_bracket += yaw @ np.array([0.0, 0.0, 0.3])
    p_camera = p_bracket + yaw @ np.array([-0.05, 0.0, 0.0])
    assert_allclose(model.chain(tool_link="bracket").fk([0.0, 0.0])[:3, 3], p_bracket, atol=ROUNDING)
    assert_allclose(model.chain(tool_link="camera").fk([0.0, 0.0])[:3, 3], p_camera, atol=ROUNDING)


def test_fingers_and_lids_are_not_part_of_the_arm() -> None:
    chain = read_urdf(FILES / "linkage.urdf").chain(tool_link="palm")
    assert chain.joint_names == ("alpha", "wrist")
    assert set(chain.all_joint_positions([0.5, 0.0])) == {"alpha", "beta", "gamma", "slide", "wrist"}


def test_a_chain_from_the_middle_of_the_robot_is_the_tail_of_the_whole_one() -> None:
    model = read_urdf(FILES / "rail_arm.urdf")
    whole, head, tail = (model.chain(*ends) for ends in (("floor", "tool"), ("floor", "bracket"), ("bracket", "tool")))
    q = np.array([0.3, -2.0, 0.7, -0.4])
    assert_allclose(head.fk(q[:2]) @ tail.fk(q[2:]), whole.fk(q), atol=ROUNDING)


def test_a_tool_offset_is_added_in_the_axes_of_the_tool_link() -> None:
    model = read_urdf(FILES / "rail_arm.urdf")
    T_tool = se3.transform(se3.rotation_exp(np.array([0.4, 0.0, 0.0])), np.array([0.0, 0.1, 0.2]))
    q = [0.3, -2.0, 0.7, -0.4]
    T = model.chain(tool_link="tool", T_tool=T_tool).fk(q)
    assert_allclose(T, model.chain(tool_link="tool").fk(q) @ T_tool, atol=ROUNDING)
    with pytest.raises(InvalidArgumentError, match=r"T_tool.*\(3, 3\)"):
        model.chain(tool_link="tool", T_tool=np.eye(3))


def test_unknown_links_are_answered_with_the_nearest_name_and_all_names() -> None:
    model = read_urdf(FILES / "rail_arm.urdf")
    with pytest.raises(UnknownNameError, match=r"no link 'tol' \(did you mean 'tool'\?\); known: .*pedestal"):
        model.chain(tool_link="tol")
    with pytest.raises(UnknownNameError, match="no link 'base_link'"):
        model.chain(base_link="base_link", tool_link="tool")
    with pytest.raises(UnknownNameError, match="no joint 'elbo'"):
        model.joint("elbo")


def test_a_tool_that_is_not_below_the_base_is_refused_with_advice() -> None:
    model = read_urdf(FILES / "rail_arm.urdf")
    with pytest.raises(InvalidArgumentError, match="'forearm' is below 'carriage': swap the two"):
        model.chain("forearm", "carriage")
    with pytest.raises(InvalidArgumentError, match="different branches; the root 'floor' is above every link"):
        model.chain("forearm", "lid")
    with pytest.raises(InvalidArgumentError, match="is the base link"):
        model.chain("forearm", "forearm")
    with pytest.raises(InvalidArgumentError, match="no joint moves between 'hand' and 'tool'"):
        model.chain("hand", "tool")


def test_floating_and_planar_joints_are_refused_inside_the_chain_only() -> None:
    model = read_urdf(FILES / "rover.urdf")
    assert model.chain("body", "gripper").joint_names == ("shoulder",)
    assert model.movable == ("shoulder",)
    with pytest.raises(UrdfError, match=r"line 9: joint 'drift' .* is floating, .*base_link='body'"):
        model.chain("world", "gripper")
    with pytest.raises(UrdfError, match=r"line 15: joint 'glide' .* is planar"):
        model.chain("body", "puck")


def test_a_mimic_joint_follows_its_master_through_a_row_of_mimics() -> None:
    chain = read_urdf(FILES / "linkage.urdf").chain(tool_link="palm")
    positions = chain.all_joint_positions([0.8, -0.1])
    expected = {"alpha": 0.8, "beta": -0.2, "gamma": -0.6, "slide": -0.01, "wrist": -0.1}
    assert positions == pytest.approx(expected, abs=ROUNDING)


def test_a_mimic_of_a_joint_outside_the_chain_is_held_where_that_joint_stands_and_says_so() -> None:
    model = read_urdf(FILES / "linkage.urdf")
    with pytest.warns(UrdfWarning, match="'finger_2_slide' mimics 'finger_1_slide', .* held at 0.025"):
        chain = model.chain(tool_link="finger_2")  # its master's limits are 0.01 to 0.04, so it stands at 0.01
    assert chain.joint_names == ("alpha", "wrist")
    T_palm_finger = se3.inverse(model.chain(tool_link="palm").fk([0.5, 0.2])) @ chain.fk([0.5, 0.2])
    assert_allclose(T_palm_finger[:3, 3], [0.05, -0.02 - 0.025, 0.0], atol=ROUNDING)


def test_a_row_of_mimics_that_multiplies_beyond_all_bounds_is_refused(write: Write) -> None:
    times = '{}<mimic joint="{}" multiplier="1e5"/>'
    body = hinge("j1", "a", "b", times.format(LIMIT, "j2")) + hinge("j2", "b", "c", times.format(LIMIT, "j3"))
    with pytest.raises(UrdfError, match=r"line 6: joint 'j1': mimics 'j3' with multiplier 1e\+10 .* at most 1e\+06"):
        read_urdf(write(body + hinge("j3", "c", "d"), links="abcd")).chain()


# --- what is refused, and in which words ---


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("", "there are 3 root links: a, b, c"),
        (hinge("j1", "a", "b"), "there are 2 root links: a, c"),
        (f"{TWO}\n" + hinge("j3", "c", "a"), "links a, c, b form a loop, by the joints 'j3' .line 7., 'j2' .line 6."),
        (TWO + '<link name="d"/><link name="e"/>' + hinge("x", "d", "e") + hinge("y", "e", "d"), "links d, e form a"),
        (f"{TWO}\n" + hinge("j3", "a", "c"), "line 7: link 'c' is the child of two joints, 'j2' .line 6. and 'j3'"),
        (hinge("j1", "a", "a"), "line 5: joint 'j1': joins link 'a' to itself"),
        (hinge("j1", "a", "bb"), "line 5: joint 'j1': its child is no link 'bb' .did you mean 'b'..; known: a, b, c"),
        (hinge("j1", "A", "b"), "line 5: joint 'j1': its parent is no link 'A'"),
        ('<link name="b"/>' + TWO, "line 5: a second link is named 'b' .the first is in line 3."),
        (hinge("j", "a", "b") + "\n" + hinge("j", "b", "c"), "line 6: a second joint is named 'j'"),
        ("<link/>" + TWO, "line 5: <link> has no name"),
        ('<link name=" "/>' + TWO, "line 5: <link> has no name"),
        ('<joint type="fixed"/>', "line 5: <joint> has no name"),
        ('<joint name="j" type="fixed"><child link="b"/></joint>', "joint 'j': <parent link=...> is missing"),
        ('<joint name="j" type="fixed"><parent link="a"/><child/></joint>', "joint 'j': <child link=...> is missing"),
        ('<joint name="j"><parent link="a"/><child link="b"/></joint>', "has no type; one of revolute, continuous"),
        (ab(LIMIT, "Revolute"), "type \"Revolute\" is unknown .did you mean 'revolute'"),
        (ab(LIMIT, "ball"), 'type "ball" is unknown; one of revolute, continuous, prismatic'),
        (ab(""), "a revolute joint needs <limit .*of type 'continuous'"),
        (ab("", "prismatic"), "a prismatic joint needs <limit"),
        (ab('<limit effort="5" velocity="1"/>'), "neither lower nor upper, which URDF reads as 0 to 0"),
        (ab('<limit lower="1" upper="-1"/>'), "lower limit 1 is above its upper limit -1"),
        (ab('<limit lower="-1" upper="1" effort="-5"/>'), "effort limit -5 is negative"),
        (ab('<limit lower="-1" upper="1" velocity="-5"/>'), "velocity limit -5 is negative"),
        (ab('<limit lower="-1" uper="1"/>'), 'attribute "uper" that URDF lacks; write upper'),
        (ab(LIMIT + LIMIT), "a second <limit> .the first is in line 5."),
        (ab(LIMIT.replace("limit", "limits")), "<limits> is no element of URDF; write <limit>"),
        (ab(LIMIT + '<orgin xyz="1 0 0"/>'), "<orgin> is no element of URDF; write <origin>"),
        (ab(LIMIT + '<axis xyz="0 0 0"/>'), 'axis "0 0 0" has no direction'),
        (ab(LIMIT + '<axis xyz="0 1"/>'), "holds 2 numbers; 3 are wanted: x y z"),
        (ab(LIMIT + '<axis xzy="0 0 1"/>'), 'attribute "xzy" that URDF lacks; write xyz'),
        (ab(LIMIT + '<origin xyz="0 0 one"/>'), '"one" is not a number'),
        (ab(LIMIT + '<origin xyz="0,1 0 0"/>'), '"0,1" is not a number; the decimal sign is a point'),
        (ab(LIMIT + '<origin xyz="0 nan 0"/>'), '"nan" is not a number; numbers must be finite'),
        (ab(LIMIT + '<origin rpy="0 0 -inf"/>'), '"-inf" is not a number; numbers must be finite'),
        (ab(LIMIT + '<origin xyz="1_0 0 0"/>'), '"1_0" is not a number'),
        (ab(LIMIT + '<origin xyz="٣ 0 0"/>'), '"٣" is not a number'),
        (ab(LIMIT + '<origin xyz="0 0 1e7"/>'), r'"1e7" is too large \(at most 1e\+06\)'),
        (ab(LIMIT + '<origin rpy="1 2 3 4"/>'), "holds 4 numbers; 3 are wanted: roll pitch yaw"),
        (ab(LIMIT + '<origin quat_xyzw="0 0 0 1"/>'), 'attribute "quat_xyzw" that URDF lacks; write'),
        (ab('<limit lower="-1" upper="1e999"/>'), '"1e999" is too large'),
        (ab('<limit lower="-inf" upper="inf"/>'), "must be finite"),
        (ab(LIMIT + "<mimic/>"), "<mimic> has no joint"),
        (ab(LIMIT + '<mimic joint="j"/>'), "joint 'j': mimics itself"),
        (ab(LIMIT + '<mimic joint="k"/>') + hinge("k", "b", "c", LIMIT + '<mimic joint="j"/>'), "circle: j, k, j"),
        (hinge("j1", "a", "b", LIMIT + '<mimic joint="j3"/>') + hinge("j2", "b", "c"), "mimics no joint 'j3'.*; known"),
        (ab(LIMIT + '<mimic joint="k"/>') + hinge("k", "b", "c", "", "fixed"), "mimics 'k', which is fixed"),
        (ab(LIMIT + '<mimic joint="k"/>') + hinge("k", "b", "c", "", "planar"), "which is planar"),
        (ab(LIMIT + '<mimic joint="k" multiplier="x"/>'), '"x" is not a number'),
        (ab(LIMIT + '<dynamics damping="-1"/>'), "must not be negative"),
        (
            ab(LIMIT + '<safety_controller soft_lower_limit="1" soft_upper_limit="0"/>'),
            "soft_lower_limit 1 is above soft_upper_limit 0",
        ),
        (TWO.replace("joint ", "jiont ").replace("joint>", "jiont>"), "<jiont> is no element of URDF; write <joint>"),
        ('<Link name="d"/>' + TWO, "line 5: <Link> is no element of URDF; write <link>"),
        ('<link name="d"><inertal/></link>', "link 'd': <inertal> is no element of URDF; write <inertial>"),
        ('<link name="d"><inertial><orgin/></inertial></link>', "link 'd': <orgin> .* write <origin>"),
        ('<link name="d"><visual><orgin/></visual></link>', "link 'd', visual: <orgin> .* write <origin>"),
        ('<link name="d"><visual><geometry><mesh scal="1 1 1"/></geometry></visual></link>', "write scale"),
        ('<link name="d"><inertial/></link>', "link 'd': <inertial> has no <mass value=...>"),
        ('<link name="d"><inertial><mass value="-1"/></inertial></link>', "link 'd': mass -1 kg is negative"),
        ('<link name="d"><inertial><mass/></inertial></link>', "link 'd': <mass> has no value"),
        ('<link name="d"><visual><geometry><box size="1 1"/></geometry></visual></link>', "link 'd', visual: <box"),
        ('<link name="d"><visual><geometry><sphere radius="-1"/></geometry></visual></link>', "<sphere> has a neg"),
        ('<link name="d"><visual><geometry><mesh/></geometry></visual></link>', "<mesh> has no filename"),
        ('<xacro:arm prefix="l_"/>', "line 5: <xacro:arm> is xacro, .* expand it first: xacro FILE > robot.urdf"),
        (ab('<origin xyz="${x} 0 0"/>'), "is xacro"),
        (hinge("$(arg p)j", "a", "b"), "is xacro"),
    ],
)  # fmt: skip
def test_a_damaged_description_is_refused_with_the_line_and_what_would_be_right(
    write: Write, body: str, words: str
) -> None:
    path = write(body)
    with pytest.raises(UrdfError, match=words) as caught:
        read_urdf(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert caught.value.path == path
    assert "\n" not in str(caught.value)


def test_two_roots_are_both_named(write: Write) -> None:
    with pytest.raises(UrdfError, match=r"there are 2 root links: base_link, stray; .* a joint is missing"):
        read_urdf(write('<link name="base_link"/><link name="stray"/>' + hinge("j", "base_link", "a"), links="a"))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b" \n\t\n", "is empty"),
        (b"not a robot at all", "line 1: is not well-formed XML"),
        (b"\x00\x01\x02\x03 binary", "is not well-formed XML"),
        (b"\x89PNG\r\n\x1a\n\x00", "line 1: byte 0x89 is not UTF-8"),
        (b"<robot><link name='a'/>", "is not well-formed XML"),
        (b"<robot>\n<link name='a'>\n</robot>", "line 3: is not well-formed XML: mismatched tag"),
        (b"<robot><link name='a' name='b'/></robot>", "duplicate attribute"),
        (b"<robot name='r'/>", "the robot has no <link>"),
        (b"<Robot name='r'/>", "<Robot> .*lower case"),
        (b"<sdf version='1.7'/>", "line 1: the outermost element is <sdf> .SDF .Gazebo..; URDF starts with <robot"),
        (b"<mujoco/>", "MuJoCo"),
        (b"<html/>", "a web page"),
        (b"<robot name='caf\xe9'/>", "line 1: byte 0xe9 is not UTF-8; save the file as UTF-8"),
        (b"<?xml version='1.0' encoding='klingon'?><robot/>", "can't be decoded|unknown encoding"),
        (b"<?xml version='1.0' encoding='euc-jp'?><robot/>", "can't be decoded|encoding"),
        (b"<!DOCTYPE robot><robot><link name='a'/></robot>", "DOCTYPE"),
        (b"<!DOCTYPE r [<!ENTITY x SYSTEM 'file:///etc/passwd'>]><robot name='&x;'/>", "DOCTYPE"),
        (b"<robot name='&x;'/>", "undefined entity"),
        (b"<robot>" + b"<gazebo>" * 1000, f"nest more than {MAX_DEPTH} deep"),
        (b"<robot>" + b"<a/>" * 50_001, "more than 50000 elements"),
    ],
)
def test_what_is_not_urdf_is_refused_with_what_it_seems_to_be(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "file.urdf"
    path.write_bytes(content)
    with pytest.raises(UrdfError, match=words):
        read_urdf(path)


def test_an_entity_bomb_is_refused_before_it_grows(tmp_path: Path) -> None:
    levels = "".join(f'<!ENTITY b{i} "{f"&b{i - 1};" * 10}">' for i in range(1, 10))
    path = tmp_path / "bomb.urdf"
    path.write_text(f'<!DOCTYPE robot [<!ENTITY b0 "x">{levels}]><robot name="&b9;"><link name="a"/></robot>')
    with pytest.raises(UrdfError, match="DOCTYPE"):
        read_urdf(path)


def test_missing_files_folders_pipes_and_huge_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UrdfError, match=r"no such file; .* holds: .*\bguarded.urdf, .*\brail_arm.urdf"):
        read_urdf(FILES / "rail_am.urdf")
    with pytest.raises(UrdfError, match="no such file"):
        read_urdf(tmp_path / "nowhere" / "robot.urdf")
    with pytest.raises(UrdfError, match=r"urdf: is a folder; a URDF file is wanted; .* holds: .*\bguarded.urdf"):
        read_urdf(FILES)
    with pytest.raises(UrdfError, match=r"^/dev/zero: is not an ordinary file"):
        read_urdf("/dev/zero")
    huge = tmp_path / "huge.urdf"
    with huge.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(UrdfError, match=f"at most {MAX_BYTES} are read"):
        read_urdf(huge)
    with pytest.raises(UrdfError, match="no usable path"):
        read_urdf("robot\0.urdf")
    with pytest.raises(InvalidArgumentError, match="path: must be the path of a URDF file, not int"):
        read_urdf(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "encoded",
    [
        "\ufeff{text}".encode(),
        b"\n\n  {text}",
        "{text}".encode("utf-16"),
        b"<?xml version='1.0' encoding='iso-8859-1'?>{text}",
        b"{text}\n\n<!-- the end -->\n",
    ],
    ids=["byte order mark", "leading blank lines", "utf-16", "latin-1", "trailing comment"],
)
def test_byte_order_marks_blank_lines_and_declared_encodings_do_no_harm(tmp_path: Path, encoded: bytes) -> None:
    wide = encoded.startswith((b"\xff\xfe", b"\xfe\xff"))
    latin = b"iso-8859-1" in encoded
    text = '<robot name="brazo rápido"><link name="muñeca"/></robot>'
    codec = "utf-16-le" if wide else "iso-8859-1" if latin else "utf-8"
    path = tmp_path / "encoded.urdf"
    path.write_bytes(encoded.replace("{text}".encode(codec), text.encode(codec)))
    model = read_urdf(path)
    assert (model.name, model.root) == ("brazo rápido", "muñeca")


# --- meshes ---


def test_packages_are_found_beside_the_file_by_walking_up(tmp_path: Path) -> None:
    for parent in (FILES, tmp_path / "mi robot café"):
        if parent != FILES:
            shutil.copytree(FILES / "bench_description", parent / "bench_description")
        model = read_urdf(parent / "bench_description" / "urdf" / "bench.urdf")
        plate, text_stl = model.link("base").visuals
        assert plate.path == parent / "bench_description" / "meshes" / "plate.obj"
        assert (plate.kind, plate.size) == ("mesh", (2.0, 2.0, 1.0))
        assert plate.filename == "package://bench_description/meshes/plate.obj"
        assert text_stl.path is not None
        (collision,) = model.link("base").collisions
        assert collision.path is not None
        assert collision.path.resolve() == (parent / "bench_description" / "meshes" / "plate.obj").resolve()
        assert model.chain().n == 1


def test_missing_meshes_and_meshes_that_pybullet_does_not_draw_are_named(write: Write, tmp_path: Path) -> None:
    triangle = struct.pack("<80sI12fH", b"solid, it says, but binary", 1, *[0.0] * 12, 0)
    (tmp_path / "binary.stl").write_bytes(triangle)
    (tmp_path / "text.STL").write_text("solid x\nfacet normal 0 0 1\nendsolid x\n")
    (tmp_path / "part.glb").write_bytes(b"glTF")
    files = ["binary.stl", "text.STL", "part.glb", "gone.obj", "https://example.org/a.stl", "x" * 300]
    files.append(f"file://{tmp_path}/binary.stl")
    meshes = "\n".join(f'<visual><geometry><mesh filename="{file}"/></geometry></visual>' for file in files)
    model = read_urdf(write(f'<link name="m">\n{meshes}\n</link>', links=""))
    found = [shape.path is not None for shape in model.link("m").visuals]
    assert found == [True, True, True, False, False, False, True]
    text, glb, gone, remote, long = model.warnings
    assert text.startswith(
        "line 5: link 'm', visual: mesh \"text.STL\" is a text STL, which PyBullet loads but doesn't draw"
    )
    assert '"part.glb" is of a kind that PyBullet doesn\'t draw' in glb
    assert gone == "line 7: link 'm', visual: mesh \"gone.obj\" is not there"
    assert "is not fetched" in remote
    assert len(long) < 150


def test_a_mesh_that_is_a_device_is_not_opened(write: Write) -> None:
    mesh = '<visual><geometry><mesh filename="/dev/zero"/></geometry></visual>'
    assert '"/dev/zero" is not there' in read_urdf(write(f'<link name="m">{mesh}</link>', links="")).warnings[0]


# --- anything at all ---

SEEDS = [path.read_text(encoding="utf-8") for path in sorted(FILES.glob("*.urdf"))]
PIECES = [
    *("", "nan", "inf", "-1e999", "1e308", "0", "-1", "1e-320", '"', "<", ">", "/>", "&amp;", "&x;", "]]>", "<!--"),
    *("${x}", "\0", "é", "\ud7ff", "<joint", "<link/>", '<mimic joint="wrist"/>', 'type="floating"', 'link="base"'),
    *('type="prismatic"', '<axis xyz="0 0 0"/>', "<!DOCTYPE robot>", "<?xml?>", "xacro:", "robot", "  "),
]


def use(path: Path) -> UrdfModel | None:
    """Read a file and build every chain; only this package's own errors are fine."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UrdfWarning)  # any other warning is an error
        try:
            model = read_urdf(path)
        except IkSimError:
            return None
        for tip in model.tips:
            try:
                chain = model.chain(tool_link=tip)
            except IkSimError:
                continue
            assert np.isfinite(chain.fk(chain.q_middle)).all()
        json.dumps(model.joint_table(), allow_nan=False)
        return model


@given(
    text=st.sampled_from(SEEDS),
    edits=st.lists(
        st.tuples(st.floats(0.0, 1.0), st.integers(0, 40), st.one_of(st.sampled_from(PIECES), st.text(max_size=4))),
        min_size=1,
        max_size=6,
    ),
    end=st.one_of(st.just(1.0), st.just(1.0), st.floats(0.0, 1.0)),
)
@settings(max_examples=300)
def test_mutilated_files_are_read_or_refused_but_never_crash(
    text: str, edits: list[tuple[float, int, str]], end: float
) -> None:
    for where, length, piece in edits:
        start = int(where * len(text))
        text = text[:start] + piece + text[start + length :]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mutilated.urdf"
        path.write_bytes(text[: int(end * len(text))].encode("utf-8", "surrogatepass"))
        use(path)


@given(
    text=st.sampled_from(SEEDS),
    swaps=st.lists(st.tuples(st.floats(0.0, 1.0), st.sampled_from(PIECES)), min_size=1, max_size=4),
)
@settings(max_examples=300)
def test_strange_attribute_values_are_read_or_refused_but_never_crash(
    text: str, swaps: list[tuple[float, str]]
) -> None:
    parts = text.split('"')
    for where, piece in swaps:
        parts[2 * int(where * (len(parts) // 2 - 1)) + 1] = piece  # what stands between quotes
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "strange.urdf"
        path.write_bytes('"'.join(parts).encode("utf-8", "surrogatepass"))
        use(path)


@given(content=st.binary(max_size=300))
def test_random_bytes_are_refused(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bytes.urdf"
        path.write_bytes(content)
        assert use(path) is None


def test_long_chains_wide_trees_and_long_rows_of_mimics_are_read(tmp_path: Path) -> None:
    count = 300
    for name, parent in (("long", lambda i: i), ("wide", lambda i: 0)):
        mimic = [f'{LIMIT}<mimic joint="j{i + 1}" multiplier="-1"/>' for i in range(count)]
        joints = "".join(hinge(f"j{i}", f"l{parent(i)}", f"l{i + 1}", mimic[i]) for i in range(count))
        links = "".join(f'<link name="l{i}"/>' for i in range(count + 2))
        last = hinge(f"j{count}", f"l{parent(count)}", f"l{count + 1}")
        path = tmp_path / f"{name}.urdf"
        path.write_text(f"<robot name='{name}'>{links}{joints}{last}</robot>")
        model = read_urdf(path)
        assert model.movable == (f"j{count}",)
        assert model.chain(tool_link=f"l{count + 1}").n == 1
        assert len(model.tips) == (1 if name == "long" else count + 1)
