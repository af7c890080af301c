"""A chain puts its tool where the published tables and PyBullet put it, and its joints keep to their limits."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pybullet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy.spatial.transform import Rotation

import ik_sim
from ik_sim import se3
from ik_sim.chain import CENTRE, REACH, Chain, Joint, Mimic
from ik_sim.errors import IkSimError, InvalidArgumentError, UnknownNameError

assert_allclose = functools.partial(np.testing.assert_allclose, rtol=0.0)  # tolerances below are absolute

VECTORS = tomllib.loads((Path(__file__).parent / "data" / "arm_vectors.toml").read_text(encoding="utf-8"))
IIWA_SIGNS = np.array([1.0, 1.0, 1.0, -1.0, 1.0, 1.0, 1.0])  # the maker counts joint 4 against the table

PRINTED = 1e-11
"""[m] and [-]: the vectors are printed with twelve digits, so half of the last digit and rounding."""
PYBULLET = 1e-6
"""[m] and [-]: PyBullet's own link poses repeat to about 1e-7 (parts of a body are kept in single precision)."""
ROUNDING = 1e-12
"""[m] and [-]: a dozen products of matrices with lengths of a few metres, in double precision."""


# --- where the tool is ---


@pytest.mark.parametrize("name", VECTORS["ur5"])
def test_the_ur5_stands_where_its_published_table_puts_it(name: str) -> None:
    vector = VECTORS["ur5"][name]
    T = ik_sim.load_robot("ur5").chain.fk(vector["q"])
    assert_allclose(T[:3, :3], vector["R"], atol=PRINTED)
    assert_allclose(T[:3, 3], vector["p"], atol=PRINTED)


@pytest.mark.parametrize("name", VECTORS["iiwa14"])
def test_the_iiwa_stands_where_its_published_table_puts_it(name: str) -> None:
    vector = VECTORS["iiwa14"][name]
    T = ik_sim.load_robot("iiwa14").chain.fk(IIWA_SIGNS * vector["q"])
    assert_allclose(T[:3, :3], vector["R"], atol=PRINTED)
    assert_allclose(T[:3, 3], vector["p"], atol=PRINTED)


class Bullet:
    """The same URDF in PyBullet, which has its own reader and its own kinematics."""

    def __init__(self, robot: Any) -> None:
        self.client = pybullet.connect(pybullet.DIRECT)
        pybullet.setPhysicsEngineParameter(enableFileCaching=0, physicsClientId=self.client)
        self.body = pybullet.loadURDF(str(robot.urdf_path), useFixedBase=True, physicsClientId=self.client)
        count = pybullet.getNumJoints(self.body, physicsClientId=self.client)
        joints = [pybullet.getJointInfo(self.body, j, physicsClientId=self.client) for j in range(count)]
        self.joint = {info[1].decode(): info[0] for info in joints}
        self.link = {info[12].decode(): info[0] for info in joints}

    def pose(self, positions: dict[str, float], link: str) -> np.ndarray:
        """Pose of a link's frame in the base."""
        for name, value in positions.items():
            pybullet.resetJointState(self.body, self.joint[name], value, physicsClientId=self.client)
        state = pybullet.getLinkState(
            self.body, self.link[link], computeForwardKinematics=True, physicsClientId=self.client
        )
        return se3.transform(Rotation.from_quat(state[5]).as_matrix(), np.array(state[4]))


@pytest.fixture
def bullet(request: pytest.FixtureRequest) -> Iterator[Bullet]:
    """PyBullet's view of the robot named by the test's `name` parameter."""
    loaded = Bullet(ik_sim.load_robot(request.getfixturevalue("name")))
    yield loaded
    pybullet.disconnect(loaded.client)


@pytest.mark.parametrize("name", ik_sim.robot_names())
def test_the_tool_is_where_pybullet_puts_it_for_any_joints(name: str, bullet: Bullet) -> None:
    robot = ik_sim.load_robot(name)
    for q in robot.chain.random_q(np.random.default_rng(1), 200):
        wanted = bullet.pose(robot.chain.all_joint_positions(q), robot.tool_link)
        assert_allclose(robot.chain.fk(q), wanted, atol=PYBULLET)


axis = st.one_of(
    st.sampled_from([(0.0, 0.0, 1.0), (0.0, 0.0, -1.0), (1.0, 0.0, 0.0), (0.0, -1.0, 0.0), (0.0, 0.0, 2.5)]),
    st.tuples(*[st.floats(-1.0, 1.0)] * 3).filter(lambda v: float(np.linalg.norm(v)) > 0.1),
).map(np.array)
origin = st.builds(
    lambda w, p: se3.transform(Rotation.from_rotvec(w).as_matrix(), np.array(p)),
    st.tuples(*[st.floats(-3.0, 3.0)] * 3),
    st.tuples(*[st.floats(-1.0, 1.0)] * 3),
)


@st.composite
def joint_lists(draw: st.DrawFn) -> list[Joint]:
    """Two to seven joints of any kind, some of which follow the first."""
    joints = []
    for i in range(draw(st.integers(2, 7))):
        kinds = ("revolute", "continuous", "prismatic") if i == 0 else ("revolute", "continuous", "prismatic", "fixed")
        kind = draw(st.sampled_from(kinds))
        follows = i > 0 and kind != "fixed" and draw(st.integers(0, 3)) == 0
        mimic = Mimic("joint 0", draw(st.floats(-2.0, 2.0)), draw(st.floats(-1.0, 1.0))) if follows else None
        joints.append(Joint(f"joint {i}", kind, draw(origin), draw(axis), mimic=mimic))
    return joints


def by_hand(joints: list[Joint], positions: dict[str, float], tool: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """The tool's pose and each moving joint's axis [direction, point], one joint after the other."""
    T, axes = np.eye(4), []
    for joint in joints:
        T = T @ joint.T_parent_joint
        direction = joint.axis / np.linalg.norm(joint.axis)
        if joint.kind == "fixed":
            continue
        value = positions[joint.name]
        if joint.kind == "prismatic":
            T = T @ se3.transform(np.eye(3), value * direction)
        else:
            T = T @ se3.transform(Rotation.from_rotvec(value * direction).as_matrix(), np.zeros(3))
        axes.append(np.concatenate([T[:3, :3] @ direction, T[:3, 3]]))
    return T @ tool, axes


def positions_by_hand(joints: list[Joint], chain: Chain, q: np.ndarray) -> dict[str, float]:
    """Each moving joint's value, followers worked out from their master."""
    values = dict(zip(chain.joint_names, q.tolist(), strict=True))
    for joint in joints:
        if joint.mimic is not None:
            values[joint.name] = joint.mimic.multiplier * values[joint.mimic.joint] + joint.mimic.offset
    return values


@given(joint_lists(), origin, st.integers(0, 2**32))
def test_the_tool_of_any_chain_is_the_product_of_its_motions(joints: list[Joint], tool: np.ndarray, seed: int) -> None:
    chain = Chain.from_joints(joints, T_last_tool=tool)
    q = np.random.default_rng(seed).uniform(-3.0, 3.0, chain.n)
    positions = positions_by_hand(joints, chain, q)
    T, axes = by_hand(joints, positions, tool)
    assert_allclose(chain.fk(q), T, atol=ROUNDING)
    assert chain.all_joint_positions(q) == pytest.approx(positions, abs=1e-15)
    frames = chain.joint_frames(q)
    assert_array_equal(frames[0], np.eye(4))
    assert_allclose(frames[-1], T, atol=ROUNDING)
    assert len(frames) == len(axes) + 2
    for frame, wanted in zip(frames[1:-1], axes, strict=True):  # a joint's frame stands on its axis, which is its z
        assert_allclose(frame[:3, 2], wanted[:3], atol=ROUNDING)
        assert_allclose(frame[:3, 3], wanted[3:], atol=ROUNDING)


@pytest.mark.parametrize("tilt", [1e-9, 1e-8, 1e-7])
def test_an_axis_that_is_hardly_tilted_is_not_taken_for_an_upright_one(tilt: float) -> None:
    joint = Joint("a", "revolute", np.eye(4), axis=np.array([0.0, tilt, 1.0]), lower=-3.0, upper=3.0)
    frames = Chain.from_joints([joint]).joint_frames([0.4])
    assert_allclose(frames[1][:3, 2], [0.0, tilt, 1.0], atol=tilt * 1e-6)  # its length differs from 1 by tilt² / 2


@given(joint_lists(), origin, st.integers(0, 2**32))
def test_the_jacobian_of_any_chain_is_what_small_motions_show(joints: list[Joint], tool: np.ndarray, seed: int) -> None:
    chain = Chain.from_joints(joints, T_last_tool=tool)
    assert_jacobian(chain, np.random.default_rng(seed).uniform(-3.0, 3.0, chain.n))


@pytest.mark.parametrize("name", ik_sim.robot_names())
def test_a_robot_s_jacobian_is_what_small_motions_show(name: str) -> None:
    chain = ik_sim.load_robot(name).chain
    for q in [*chain.random_q(np.random.default_rng(2), 50), np.zeros(chain.n)]:
        assert_jacobian(chain, q)


def assert_jacobian(chain: Chain, q: np.ndarray) -> None:
    """Compare with central differences: linear rows first, then angular ones, in base axes."""
    h = 1e-5  # cuts the series off at h²/6 and loses 1e-16/h to rounding, in sum below 1e-10 per metre of arm
    J = np.empty((6, chain.n))
    for i in range(chain.n):
        step = np.zeros(chain.n)
        step[i] = h
        before, after = chain.fk(q - step), chain.fk(q + step)
        J[:3, i] = (after[:3, 3] - before[:3, 3]) / (2.0 * h)
        J[3:, i] = Rotation.from_matrix(after[:3, :3] @ before[:3, :3].T).as_rotvec() / (2.0 * h)
    assert_allclose(chain.jacobian(q), J, atol=1e-8)


@pytest.mark.parametrize("name", ik_sim.robot_names())
def test_many_configurations_at_once_give_the_same_bits_as_one_by_one(name: str) -> None:
    chain = ik_sim.load_robot(name).chain
    q = chain.random_q(np.random.default_rng(3), 100)
    assert_array_equal(chain.fk_batch(q), [chain.fk(row) for row in q])
    assert chain.fk_batch(np.empty((0, chain.n))).shape == (0, 4, 4)


def test_arguments_may_be_lists_integers_and_views_and_are_left_alone() -> None:
    chain = ik_sim.load_robot("ur5").chain
    assert_array_equal(chain.fk([1, 0, -1, 0, 2, 0]), chain.fk(np.array([1.0, 0.0, -1.0, 0.0, 2.0, 0.0])))
    q = np.arange(12.0)[::2]
    q.setflags(write=False)
    assert_array_equal(chain.fk(q), chain.fk([0.0, 2.0, 4.0, 6.0, 8.0, 10.0]))
    assert_array_equal(q, [0, 2, 4, 6, 8, 10])


@given(joint_lists(), origin, st.integers(0, 2**32))
def test_no_tool_gets_farther_than_the_links_together_reach(joints: list[Joint], tool: np.ndarray, seed: int) -> None:
    """The bound that lets a numeric solver claim "out of reach" for any chain."""
    rng = np.random.default_rng(seed)
    unlimited = Chain.from_joints(joints, T_last_tool=tool)
    chain = unlimited.with_limits({name: tuple(sorted(rng.uniform(-3.0, 3.0, 2))) for name in unlimited.joint_names})
    tools = chain.fk_batch(chain.random_q(rng, 100))[:, :3, 3]
    farthest = np.linalg.norm(tools - chain.packed[CENTRE : CENTRE + 3], axis=1).max()
    assert farthest <= chain.packed[REACH] + ROUNDING


# --- limits ---


def lever(name: str, **changes: Any) -> Joint:
    """A revolute joint about z, half a metre out, with limits ±1."""
    T = se3.transform(np.eye(3), np.array([0.5, 0.0, 0.0]))
    return Joint(name, **{"kind": "revolute", "T_parent_joint": T, "lower": -1.0, "upper": 1.0, **changes})


def test_limits_are_read_joint_by_joint_and_can_not_be_written_over() -> None:
    chain = Chain.from_joints(
        [
            lever("a", lower=-0.5, velocity=2.0, effort=7.0, soft_upper=0.8),
            lever("b", kind="continuous", lower=-np.inf, upper=np.inf),
            lever("c", kind="fixed"),
            lever("d", kind="prismatic", lower=0.1, upper=0.4),
        ]
    )
    assert chain.n == 3
    assert chain.joint_names == ("a", "b", "d")
    assert_array_equal(chain.lower, [-0.5, -np.inf, 0.1])
    assert_array_equal(chain.upper, [1.0, np.inf, 0.4])
    assert_array_equal(chain.velocity_limits, [2.0, np.inf, np.inf])
    assert_array_equal(chain.effort_limits, [7.0, np.inf, np.inf])
    assert_array_equal(chain.soft_upper, [0.8, np.inf, 0.4])
    assert_array_equal(chain.soft_lower, [-0.5, -np.inf, 0.1])
    assert_array_equal(chain.q_middle, [0.25, 0.0, 0.25])
    with pytest.raises(ValueError, match="read-only"):
        chain.lower[0] = -9.0
    with pytest.raises(ValueError, match="read-only"):
        chain.q_middle[0] = -9.0


def test_clipping_moves_each_joint_to_its_nearest_legal_value() -> None:
    chain = Chain.from_joints([lever("a"), lever("b", kind="continuous", lower=-np.inf, upper=np.inf), lever("c")])
    q = np.array([1.5, 50.0, -0.3])
    assert_array_equal(chain.clip(q), [1.0, 50.0, -0.3])
    assert_array_equal(q, [1.5, 50.0, -0.3])
    assert not chain.within_limits(q)
    assert chain.within_limits(chain.clip(q))
    assert chain.within_limits([1.0 + 1e-9, 0.0, 0.0], tolerance=1e-8)
    assert not chain.within_limits([1.0 + 1e-9, 0.0, 0.0])


def test_a_middle_is_legal_where_zero_is_not() -> None:
    one_sided = Chain.from_joints([lever("a", lower=0.3, upper=np.inf), lever("b", lower=-np.inf, upper=-2.0)])
    assert_array_equal(one_sided.q_middle, [0.3, -2.0])
    assert one_sided.within_limits(one_sided.random_q(np.random.default_rng(0)))


def test_random_configurations_fill_the_limits_and_repeat_with_their_seed() -> None:
    chain = ik_sim.load_robot("iiwa14").chain
    q = chain.random_q(np.random.default_rng(5), 2000)
    assert q.shape == (2000, 7)
    assert all(chain.within_limits(row) for row in q)
    span = (q.max(axis=0) - q.min(axis=0)) / (chain.upper - chain.lower)
    assert (span > 0.99).all()  # 2000 uniform draws leave 1/1000 of the range at the ends on average
    assert_array_equal(q, chain.random_q(np.random.default_rng(5), 2000))
    inner = chain.random_q(np.random.default_rng(5), 2000, within=0.5)
    assert (np.abs(inner) <= 0.5 * chain.upper).all()
    unlimited = Chain.from_joints([lever("a", kind="continuous", lower=-np.inf, upper=np.inf)])
    assert np.abs(unlimited.random_q(np.random.default_rng(5), 2000)).max() <= np.pi


def test_other_limits_make_another_chain_and_leave_this_one() -> None:
    chain = ik_sim.load_robot("ur5").chain
    narrow = chain.with_limits({"elbow_joint": (-1.0, 2.0)})
    assert_array_equal(narrow.lower[2], -1.0)
    assert_array_equal(narrow.upper[2], 2.0)
    assert_array_equal(narrow.lower[[0, 1, 3, 4, 5]], chain.lower[[0, 1, 3, 4, 5]])
    assert_array_equal(chain.upper, np.full(6, 2.0 * np.pi))
    q = np.array([0.1, -1.0, 0.5, 0.3, 0.2, -0.4])
    assert_array_equal(narrow.fk(q), chain.fk(q))
    assert narrow.family == chain.family
    with pytest.raises(UnknownNameError, match=r"no joint 'elbow' \(did you mean 'elbow_joint'\?\); known: "):
        chain.with_limits({"elbow": (0.0, 1.0)})
    for limits in ((1.0, -1.0), (np.nan, 1.0), (0.0, np.nan)):
        with pytest.raises(InvalidArgumentError, match=r"'elbow_joint'.*lower .* must not exceed upper"):
            chain.with_limits({"elbow_joint": limits})


def test_a_locked_joint_has_limits_without_room() -> None:
    chain = ik_sim.load_robot("iiwa14").chain
    locked = chain.locked({"joint_3": 0.25})
    assert locked.n == 7
    assert locked.lower[2] == locked.upper[2] == 0.25
    assert (locked.random_q(np.random.default_rng(0), 20)[:, 2] == 0.25).all()
    with pytest.raises(InvalidArgumentError, match=r"locked\['joint_3'\]: 4 is outside .* \[-2.96706, 2.96706\]"):
        chain.locked({"joint_3": 4.0})
    with pytest.raises(InvalidArgumentError, match="joint_3"):
        chain.locked({"joint_3": np.nan})
    with pytest.raises(UnknownNameError, match="known: joint_1, joint_2"):
        chain.locked({"third": 0.0})


@pytest.mark.parametrize("name", ik_sim.robot_names())
def test_a_mounted_tool_follows_the_flange_and_keeps_changed_limits(name: str) -> None:
    chain = ik_sim.load_robot(name).chain
    first = chain.joint_names[0]
    chain = chain.with_limits({first: (-0.7, 0.9)})
    offset = se3.exp(np.array([0.1, -0.2, 0.3, 0.4, 0.5, -0.6]))
    tooled = chain.with_tool(offset)
    for q in chain.random_q(np.random.default_rng(4), 5):
        assert_allclose(tooled.fk(q), chain.fk(q) @ offset, atol=ROUNDING)
        assert_allclose(tooled.with_tool(se3.inverse(offset)).fk(q), chain.fk(q), atol=ROUNDING)
    assert_array_equal(tooled.lower, chain.lower)
    assert_array_equal(tooled.upper, chain.upper)
    assert tooled.family == chain.family
    with pytest.raises(InvalidArgumentError, match=r"T_tool_offset: .*\(4, 4\)"):
        chain.with_tool([0.0, 0.0, 0.1])


# --- joints that follow others ---


def test_a_follower_moves_with_its_master_and_narrows_its_limits() -> None:
    follower = lever("b", lower=-0.5, upper=0.9, velocity=1.0, mimic=Mimic("a", multiplier=-2.0, offset=0.1))
    chain = Chain.from_joints([lever("a", velocity=3.0), follower])
    assert chain.joint_names == ("a",)
    assert chain.all_joint_positions([0.2]) == {"a": 0.2, "b": pytest.approx(-0.3)}
    # -0.5 ≤ -2 a + 0.1 ≤ 0.9 means -0.4 ≤ a ≤ 0.3; at 1 rad/s for b, a may turn at half of that
    assert_allclose([chain.lower[0], chain.upper[0], chain.velocity_limits[0]], [-0.4, 0.3, 0.5], rtol=1e-15)


def test_a_follower_s_follower_and_one_before_its_master_are_followed_too() -> None:
    chain = Chain.from_joints(
        [
            lever("c", mimic=Mimic("b", multiplier=3.0, offset=0.5)),
            lever("b", mimic=Mimic("a", multiplier=0.5, offset=-0.2)),
            lever("a"),
        ]
    )
    assert chain.joint_names == ("a",)
    assert chain.all_joint_positions([0.4]) == pytest.approx({"c": 0.5, "b": 0.0, "a": 0.4}, abs=1e-15)
    assert_jacobian(chain, np.array([0.4]))


def test_a_follower_that_its_master_can_not_satisfy_is_refused() -> None:
    with pytest.raises(IkSimError, match="'a' has lower limit 2 above its upper limit 1"):
        Chain.from_joints([lever("a"), lever("b", lower=2.0, upper=3.0, mimic=Mimic("a"))])


# --- what can not be a chain ---


@pytest.mark.parametrize(
    ("joints", "words"),
    [
        ([lever("a"), lever("a")], "'a' comes twice"),
        ([lever("a", kind="fixed")], "no joint moves between 'base' and 'tool'"),
        ([], "no joint moves between 'base' and 'tool'"),
        ([lever("a", kind="hinge")], "joint 'a'.*'hinge'.*known: continuous, fixed, prismatic, revolute"),
        ([lever("a", axis=np.zeros(3))], r"joint 'a' has the axis \[0.0, 0.0, 0.0\]: .*finite direction"),
        ([lever("a", axis=np.array([0.0, np.nan, 1.0]))], "joint 'a' has the axis.*finite direction"),
        ([lever("a", lower=np.nan)], "joint 'a' has a NaN among its limits"),
        ([lever("a", velocity=np.nan)], "joint 'a' has a NaN among its limits"),
        ([lever("a", lower=1.0, upper=-1.0)], "'a' has lower limit 1 above its upper limit -1"),
        ([lever("a", T_parent_joint=np.full((4, 4), 0.5))], "T_parent_joint of joint 'a': .*0 0 0 1"),
        ([lever("a"), lever("b", mimic=Mimic("z"))], "'b' mimics 'z', which is not a moving joint of the chain"),
        ([lever("f", kind="fixed"), lever("a"), lever("b", mimic=Mimic("f"))], "'b' mimics 'f', which is not a moving"),
        (
            [lever("a"), lever("b", mimic=Mimic("c")), lever("c", mimic=Mimic("b"))],
            "mimic each other in a circle: b -> c -> b",
        ),
    ],
)
def test_what_can_not_be_a_chain_is_refused_by_the_joint_s_name(joints: list[Joint], words: str) -> None:
    with pytest.raises(IkSimError, match=words):
        Chain.from_joints(joints)


@pytest.mark.parametrize(
    ("q", "words"),
    [
        ([0.0] * 5, "q: 5 given, 6 wanted: shoulder_pan_joint, shoulder_lift_joint, elbow_joint"),
        ([[0.0] * 6], r"q: shape \(1, 6\) given, 6 wanted"),
        (0.0, r"q: shape \(\) given, 6 wanted"),
        ([0.0, 0.0, np.nan, 0.0, 0.0, 0.0], "q: holds NaN or infinity"),
        ([0.0, 0.0, 0.0, 0.0, 0.0, np.inf], "q: holds NaN or infinity"),
        (["a", "b", "c", "d", "e", "f"], "q: must be 6 numbers"),
        (None, "q: "),
    ],
)
def test_joint_values_that_do_not_fit_are_answered_with_the_joints(q: Any, words: str) -> None:
    chain = ik_sim.load_robot("ur5").chain
    for method in (chain.fk, chain.jacobian, chain.joint_frames, chain.all_joint_positions, chain.clip):
        with pytest.raises(InvalidArgumentError, match=words):
            method(q)


@pytest.mark.parametrize("q", [np.zeros(6), np.zeros((2, 5)), np.full((2, 6), np.nan)])
def test_a_batch_that_does_not_fit_is_refused(q: np.ndarray) -> None:
    with pytest.raises(InvalidArgumentError, match=r"q: (has shape .*wanted \(k, 6\): shoulder_pan_joint|holds NaN)"):
        ik_sim.load_robot("ur5").chain.fk_batch(q)


@settings(max_examples=20)
@given(joint_lists())
def test_building_a_chain_leaves_its_joints_as_they_were(joints: list[Joint]) -> None:
    before = [(j.T_parent_joint.copy(), j.axis.copy()) for j in joints]
    Chain.from_joints(joints)
    for joint, (T, direction) in zip(joints, before, strict=True):
        assert_array_equal(joint.T_parent_joint, T)
        assert_array_equal(joint.axis, direction)
