"""A target says in the reader's own terms what the tool must reach, and refuses what nothing could mean."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy.spatial.transform import Rotation

import ik_sim
from ik_sim import se3
from ik_sim.errors import IkSimError, InvalidArgumentError
from ik_sim.target import AXIS, POINT, POSE, Target, Tolerance

assert_allclose = functools.partial(np.testing.assert_allclose, rtol=0.0)  # tolerances below are absolute

ROUNDING = 1e-15
"""[-] Unit vectors and rotations of one product or two."""


def some_pose() -> np.ndarray:
    """A pose without a zero or a one in it, its bottom row apart."""
    return se3.transform(Rotation.from_rotvec([0.3, -0.7, 1.1]).as_matrix(), np.array([0.1, -0.2, 0.3]))


# --- what a target holds ---


def test_a_pose_is_copied_so_that_later_changes_of_the_array_do_not_reach_it() -> None:
    T = some_pose()
    target = Target.pose(T)
    wanted = T.copy()
    T[:] = 0.0
    assert_array_equal(target.T, wanted)
    assert (target.kind, target.kind_name) == (POSE, "pose")


def test_a_pose_may_be_given_as_position_with_roll_pitch_yaw_or_quaternion() -> None:
    T = some_pose()
    by_quaternion = Target.pose(xyz=[0.1, -0.2, 0.3], quat_xyzw=Rotation.from_matrix(T[:3, :3]).as_quat())
    assert_allclose(by_quaternion.T, T, atol=ROUNDING)
    rpy = Rotation.from_matrix(T[:3, :3]).as_euler("xyz")  # about fixed axes, as in URDF
    assert_allclose(Target.pose(xyz=(0.1, -0.2, 0.3), rpy=rpy.tolist()).T, T, atol=2 * ROUNDING)


def test_the_quaternion_s_order_is_x_y_z_w() -> None:
    target = Target.pose(xyz=[0.4, 0.1, 0.4], quat_xyzw=[0.0, 0.7071068, 0.0, 0.7071068])
    # A quarter turn about y: the tool's z axis points along the base's x. As w, x, y, z it would be half a turn away.
    assert_allclose(target.T, [[0, 0, 1, 0.4], [0, 1, 0, 0.1], [-1, 0, 0, 0.4], [0, 0, 0, 1]], atol=1e-6)


def test_a_point_target_holds_the_point() -> None:
    target = Target.point([1, 2, 3])
    assert_array_equal(target.T[:3, 3], [1.0, 2.0, 3.0])
    assert (target.kind, target.kind_name) == (POINT, "point")


component = st.one_of(st.floats(-10.0, 10.0), st.sampled_from([0.0, 1e-300, -1e-12, 1e150, 1e300]))


@given(st.tuples(component, component, component).filter(any))
def test_an_axis_target_s_z_axis_points_along_a_direction_of_any_length(direction: tuple[float, float, float]) -> None:
    target = Target.axis([0.1, 0.2, 0.3], direction)
    R = target.T[:3, :3]
    assert_allclose(R.T @ R, np.eye(3), atol=4 * ROUNDING)
    assert np.linalg.det(R) > 0.0
    z = np.array(direction) / max(abs(x) for x in direction)
    assert_allclose(R[:, 2], z / np.linalg.norm(z), atol=ROUNDING)
    assert_array_equal(target.T[:3, 3], [0.1, 0.2, 0.3])
    assert (target.kind, target.kind_name) == (AXIS, "axis")


@pytest.mark.parametrize("kind", ["pose", "point", "axis"])
def test_a_target_seen_from_another_frame_is_the_same_place(kind: str) -> None:
    targets = {
        "pose": Target.pose(some_pose()),
        "point": Target.point([1, 2, 3]),
        "axis": Target.axis([1, 2, 3], [0, 1, 1]),
    }
    T_base_world = se3.exp(np.array([1.0, 2.0, 3.0, -0.4, 0.5, 0.6]))
    moved = targets[kind].moved(T_base_world)
    assert moved.kind == targets[kind].kind
    assert_allclose(moved.T, T_base_world @ targets[kind].T, atol=ROUNDING)
    assert_allclose(moved.moved(se3.inverse(T_base_world)).T, targets[kind].T, atol=8 * ROUNDING)
    with pytest.raises(InvalidArgumentError, match="T_new_old"):
        targets[kind].moved(np.zeros((4, 4)))


def test_a_target_s_fields_can_not_be_set() -> None:
    with pytest.raises(AttributeError):
        Target.point([0, 0, 0]).kind = POSE  # type: ignore[misc]


# --- what is refused ---


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "takes a matrix, or xyz with either rpy or quat_xyzw"),
        ({"xyz": [0, 0, 0]}, "xyz with either rpy or quat_xyzw"),
        ({"rpy": [0, 0, 0]}, "xyz with either rpy or quat_xyzw"),
        ({"xyz": [0, 0, 0], "rpy": [0, 0, 0], "quat_xyzw": [0, 0, 0, 1]}, "xyz with either rpy or quat_xyzw"),
        ({"T": np.eye(4), "xyz": [0, 0, 0]}, "a matrix, or xyz with rpy or quat_xyzw, not both"),
        ({"T": np.eye(3)}, r"pose: has shape \(3, 3\)"),
        ({"T": 2.0 * np.eye(4)}, "pose: has the bottom row"),
        ({"T": np.diag([1.0, 1.0, -1.0, 1.0])}, "pose: .*reflection"),
        ({"T": np.diag([1.0, 1.0, 1.1, 1.0])}, "pose: .*not orthonormal"),
        ({"T": np.full((4, 4), np.nan)}, "pose: holds NaN"),
        ({"xyz": [0, 0], "rpy": [0, 0, 0]}, r"xyz: has shape \(2,\); 3 numbers are wanted"),
        ({"xyz": [0, 0, np.nan], "rpy": [0, 0, 0]}, "xyz: holds NaN or infinity"),
        ({"xyz": [0, 0, 0], "rpy": [0, np.inf, 0]}, "rpy: holds NaN or infinity"),
        ({"xyz": [0, 0, 0], "rpy": "upright"}, "rpy: must be 3 numbers"),
        ({"xyz": [0, 0, 0], "quat_xyzw": [0, 0, 0]}, r"quat_xyzw: has shape \(3,\); 4 numbers are wanted"),
        ({"xyz": [0, 0, 0], "quat_xyzw": [0, 0, 0, 0]}, "quat_xyzw: has length 0; a rotation has length 1"),
        ({"xyz": [0, 0, 0], "quat_xyzw": [0, 0, 0, np.nan]}, "quat_xyzw: holds NaN or infinity"),
    ],
)
def test_what_is_not_a_pose_is_refused_with_what_would_be_right(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words) as caught:
        Target.pose(**arguments)
    assert isinstance(caught.value, IkSimError)


@pytest.mark.parametrize("p", [[0, 0], [[0, 0, 0]], [0, 0, np.inf], ["a", "b", "c"], None, 1.0])
def test_what_is_not_a_point_is_refused(p: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="point: "):
        Target.point(p)
    with pytest.raises(InvalidArgumentError, match="point: "):
        Target.axis(p, [0, 0, 1])


@pytest.mark.parametrize("direction", [[0, 0, 0], [0, 0, np.nan], [0, 1], None])
def test_what_is_not_a_direction_is_refused(direction: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="direction: "):
        Target.axis([0, 0, 0], direction)


# --- how near is near enough ---


def test_tolerances_are_a_micrometre_and_a_microradian_unless_said_otherwise() -> None:
    assert (Tolerance().position, Tolerance().rotation) == (1e-6, 1e-6)
    assert Tolerance(position=1e-3) == Tolerance(1e-3, 1e-6)


@pytest.mark.parametrize("value", [0.0, -1e-6, float("nan")])
@pytest.mark.parametrize("name", ["position", "rotation"])
def test_a_tolerance_that_can_not_be_met_is_refused(name: str, value: float) -> None:
    with pytest.raises(InvalidArgumentError, match=f"tolerance.{name}: must be above 0"):
        Tolerance(**{name: value})


def test_a_bare_matrix_is_taken_as_a_pose_and_is_not_changed() -> None:
    chain = ik_sim.load_robot("planar3").chain
    T = chain.fk([0.2, 0.3, 0.4])
    before = T.copy()
    solution = ik_sim.load_solver("closed_form").solve(chain, T)
    assert_array_equal(solution.q, ik_sim.load_solver("closed_form").solve(chain, Target.pose(T)).q)
    assert_array_equal(T, before)


def test_rounding_in_the_bottom_row_of_a_bare_matrix_is_no_reason_to_refuse_it() -> None:
    chain = ik_sim.load_robot("planar3").chain
    T = chain.fk([0.2, 0.3, 0.4])
    T[3] = [1e-13, 0.0, 0.0, 1.0 - 1e-13]  # as np.linalg.inv leaves it
    solver = ik_sim.load_solver("closed_form")
    assert solver.solve(chain, T).converged
    assert solver.solve_batch(chain, T[None]).converged.all()


def test_a_batch_names_the_row_that_is_no_target() -> None:
    chain = ik_sim.load_robot("planar3").chain
    solver = ik_sim.load_solver("closed_form")
    targets = np.stack([chain.fk([0.2, 0.3, 0.4])] * 3)
    reflected, doubled, broken = targets.copy(), targets.copy(), targets.copy()
    reflected[2, :3, 2] *= -1.0
    doubled[1, 3, 3] = 2.0
    broken[0, 1, 3] = np.nan
    with pytest.raises(InvalidArgumentError, match=r"targets\[2\]: .*reflection"):
        solver.solve_batch(chain, reflected)
    with pytest.raises(InvalidArgumentError, match=r"targets\[1\]: .*bottom row"):
        solver.solve_batch(chain, doubled)
    with pytest.raises(InvalidArgumentError, match=r"targets\[0\]: holds NaN"):
        solver.solve_batch(chain, broken)
    with pytest.raises(InvalidArgumentError, match=r"targets\[1\]: a point target .* ends in 0 0 0 1"):
        ik_sim.load_solver("closed_form").solve_batch(ik_sim.load_robot("planar2").chain, doubled, kind=POINT)
    with pytest.raises(InvalidArgumentError, match=r"q_seeds\[1\]: holds NaN"):
        solver.solve_batch(chain, targets, [[0.0, 0.0, 0.0], [0.0, np.nan, 0.0], [0.0, 0.0, 0.0]])
    assert solver.solve_batch(chain, targets).converged.all()
