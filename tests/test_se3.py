"""Rigid motions form a group, exp and log undo each other, and what is no pose is refused in plain words."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy.linalg import expm
from scipy.spatial.transform import Rotation

from ik_sim import se3
from ik_sim.errors import IkSimError, InvalidArgumentError

assert_allclose = functools.partial(np.testing.assert_allclose, rtol=0.0)  # tolerances below are absolute

ROUNDING = 1e-14
"""A few products of matrices whose entries are at most 1, in double precision."""
METRES = 1e-12
"""[m] The same with lengths up to 10 m."""

coordinate = st.floats(-10.0, 10.0)
point = st.tuples(coordinate, coordinate, coordinate).map(np.array)
direction = (
    st.tuples(*[st.floats(-1.0, 1.0)] * 3)
    .map(np.array)
    .filter(lambda v: float(np.linalg.norm(v)) > 0.1)
    .map(lambda v: v / np.linalg.norm(v))
)
# Powers of ten away from no turn and from half a turn: where an arc cosine or a division by the sine breaks down.
small = st.floats(-16.0, -1.0).map(lambda e: 10.0**e)
angle = st.one_of(st.floats(0.0, np.pi), small, small.map(lambda e: np.pi - e), st.sampled_from([0.0, 1e-200, np.pi]))
rotation_vector = st.builds(lambda axis, size: axis * size, direction, angle)
rotation = rotation_vector.map(lambda w: Rotation.from_rotvec(w).as_matrix())
pose = st.builds(se3.transform, rotation, point)


def turn(axis: Any, size: float) -> np.ndarray:
    """Rotation by `size` about a coordinate axis, entry by entry."""
    c, s = np.cos(size), np.sin(size)
    return {
        "x": np.array([[1, 0, 0], [0, c, -s], [0, s, c]]),
        "y": np.array([[c, 0, s], [0, 1, 0], [-s, 0, c]]),
        "z": np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]]),
    }[axis]


# --- the group ---


@given(pose, pose, pose)
def test_motions_combine_as_a_group(A: np.ndarray, B: np.ndarray, C: np.ndarray) -> None:
    assert_allclose((A @ B) @ C, A @ (B @ C), atol=METRES)
    assert_allclose(A @ se3.inverse(A), np.eye(4), atol=METRES)
    assert_allclose(se3.inverse(A) @ A, np.eye(4), atol=METRES)
    assert_allclose(se3.inverse(A @ B), se3.inverse(B) @ se3.inverse(A), atol=METRES)


@given(pose, point)
def test_the_inverse_brings_a_point_back(T: np.ndarray, p: np.ndarray) -> None:
    there = T[:3, :3] @ p + T[:3, 3]
    back = se3.inverse(T)
    assert_allclose(back[:3, :3] @ there + back[:3, 3], p, atol=METRES)


@given(direction, direction)
def test_hat_is_the_cross_product(a: np.ndarray, b: np.ndarray) -> None:
    assert_allclose(se3.hat(a) @ b, np.cross(a, b), atol=ROUNDING)


# --- exponential and logarithm ---


@given(st.builds(lambda v, w: np.concatenate([v, w]), point, rotation_vector))
def test_exp_is_the_matrix_exponential(twist: np.ndarray) -> None:
    generator = np.zeros((4, 4))
    generator[:3, :3] = np.cross(twist[3:], np.eye(3)).T  # column k is w × e_k
    generator[:3, 3] = twist[:3]
    assert_allclose(se3.exp(twist), expm(generator), atol=1e-13)  # scipy's own error, at norms up to 17


@given(st.builds(lambda v, w: np.concatenate([v, w]), point, rotation_vector))
@example(np.array([1.0, -2.0, 3.0, 0.0, 0.0, 0.0]))
@example(np.array([1.0, -2.0, 3.0, 0.0, 0.0, 1e-4]))  # where the series hands over to the closed form
@example(np.array([1.0, -2.0, 3.0, 0.0, 0.0, np.nextafter(1e-4, 0)]))
def test_log_undoes_exp_from_no_turn_to_half_a_turn(twist: np.ndarray) -> None:
    T = se3.exp(twist)
    back = se3.log(T)
    if np.linalg.norm(twist[3:]) > np.pi - 1e-10:  # half a turn either way is the same rotation: compare motions
        assert_allclose(se3.exp(back), T, atol=METRES)
        assert np.linalg.norm(back[3:]) <= np.pi + 1e-15
    else:
        assert_allclose(back, twist, atol=1e-12)


@given(pose)
def test_exp_undoes_log(T: np.ndarray) -> None:
    assert_allclose(se3.exp(se3.log(T)), T, atol=METRES)


@given(rotation_vector)
def test_rotation_log_gives_the_shortest_rotation_vector(w: np.ndarray) -> None:
    back = se3.rotation_log(Rotation.from_rotvec(w).as_matrix())
    assert np.linalg.norm(back) <= np.pi + 1e-15
    if np.linalg.norm(w) < np.pi - 1e-10:
        # A rotation matrix holds each angle to rounding, so an angle of 1e-9 keeps seven digits.
        assert_allclose(back, w, atol=4e-15)
    else:
        assert_allclose(np.abs(back @ w), np.pi**2, rtol=1e-9)


@pytest.mark.parametrize("axis", ["x", "y", "z"])
@pytest.mark.parametrize(
    "size", [0.0, 1e-15, 1e-12, 1e-9, 1e-6, 1e-3, 1.0, 3.0, np.pi - 1e-6, np.pi - 1e-9, np.pi - 1e-12, np.pi]
)
def test_rotation_angle_is_accurate_at_both_ends(axis: str, size: float) -> None:
    R = turn(axis, size)
    # 1e-12 rad is far below any tolerance in use; (tr R - 1)/2 with an arc cosine can't resolve angles below 1e-8.
    assert_allclose(se3.rotation_angle(R), size, atol=1e-12)
    assert_allclose(np.linalg.norm(se3.rotation_log(R)), size, atol=1e-12)


@given(rotation_vector)
def test_rotation_angle_is_the_length_of_the_rotation_vector(w: np.ndarray) -> None:
    assert_allclose(se3.rotation_angle(se3.rotation_exp(w)), np.linalg.norm(w), atol=1e-12)


@given(pose, pose)
def test_pose_error_measures_distance_and_angle_in_their_own_units(A: np.ndarray, B: np.ndarray) -> None:
    position, angle_between = se3.pose_error(A, B)
    assert_allclose(position, np.linalg.norm(A[:3, 3] - B[:3, 3]), rtol=1e-14)
    relative = Rotation.from_matrix(A[:3, :3]).inv() * Rotation.from_matrix(B[:3, :3])
    assert_allclose(angle_between, relative.magnitude(), atol=1e-12)
    assert se3.pose_error(A, A)[0] == 0.0


# --- interpolation ---


@given(pose, pose, st.floats(0.0, 1.0))
def test_interpolation_goes_straight_and_turns_evenly_the_short_way(A: np.ndarray, B: np.ndarray, s: float) -> None:
    T = se3.interpolate(A, B, s)
    assert_allclose(T[:3, 3], A[:3, 3] + s * (B[:3, 3] - A[:3, 3]), atol=METRES)
    whole = se3.rotation_angle(A[:3, :3].T @ B[:3, :3])
    assert_allclose(se3.rotation_angle(A[:3, :3].T @ T[:3, :3]), s * whole, atol=1e-12)
    assert_allclose(se3.rotation_angle(T[:3, :3].T @ B[:3, :3]), (1.0 - s) * whole, atol=1e-12)


@given(pose, pose)
def test_interpolation_starts_and_ends_at_its_poses(A: np.ndarray, B: np.ndarray) -> None:
    assert_allclose(se3.interpolate(A, B, 0.0), A, atol=METRES)
    assert_allclose(se3.interpolate(A, B, 1.0), B, atol=METRES)


@given(rotation, rotation, st.floats(0.0, 1.0))
def test_the_sign_of_a_quaternion_does_not_send_interpolation_the_long_way(
    R0: np.ndarray, R1: np.ndarray, s: float
) -> None:
    q0, q1 = se3.matrix_to_quat_xyzw(R0), se3.matrix_to_quat_xyzw(R1)
    paths = []
    for sign0, sign1 in ((1, 1), (-1, 1), (1, -1)):
        T0 = se3.transform(se3.quat_xyzw_to_matrix(sign0 * q0), np.zeros(3))
        T1 = se3.transform(se3.quat_xyzw_to_matrix(sign1 * q1), np.zeros(3))
        paths.append(se3.interpolate(T0, T1, s))
    assert_array_equal(paths[0], paths[1])
    assert_array_equal(paths[0], paths[2])


# --- quaternions ---


def test_the_quaternion_s_order_is_x_y_z_w() -> None:
    R = se3.quat_xyzw_to_matrix(np.array([0.0, 0.7071068, 0.0, 0.7071068]))
    assert_allclose(R, turn("y", np.pi / 2).round(), atol=1e-15)
    # Read as w, x, y, z the same four numbers would be half a turn about (x + z)/√2... away from this one.
    misread = Rotation.from_quat([0.7071068, 0.0, 0.7071068, 0.0]).as_matrix()
    assert_allclose(se3.rotation_angle(R.T @ misread), np.pi, atol=1e-7)


@given(rotation)
def test_quaternions_agree_with_scipy_s_and_lose_no_digit_anywhere(R: np.ndarray) -> None:
    q = se3.matrix_to_quat_xyzw(R)
    assert_allclose(np.linalg.norm(q), 1.0, atol=1e-15)
    assert q[3] >= 0.0
    assert_allclose(Rotation.from_quat(q).as_matrix(), R, atol=4e-15)
    assert_allclose(se3.quat_xyzw_to_matrix(q), R, atol=4e-15)


@given(rotation)
def test_a_quaternion_and_its_negative_are_the_same_rotation(R: np.ndarray) -> None:
    q = se3.matrix_to_quat_xyzw(R)
    assert_array_equal(se3.quat_xyzw_to_matrix(q), se3.quat_xyzw_to_matrix(-q))


def test_a_quaternion_of_few_digits_still_gives_a_rotation() -> None:
    R = se3.quat_xyzw_to_matrix(np.array([0.183, 0.365, 0.548, 0.730]))  # length 0.99994
    assert_allclose(R.T @ R, np.eye(3), atol=1e-15)


@pytest.mark.parametrize(
    "quat_xyzw", [[0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 2.0], [1.0, 1.0, 0.0, 0.0], [0, 0, 0, np.nan]]
)
def test_four_numbers_that_are_no_quaternion_are_refused(quat_xyzw: list[float]) -> None:
    with pytest.raises(InvalidArgumentError, match=r"quat_xyzw: .*length 1 \(order x, y, z, w\)"):
        se3.quat_xyzw_to_matrix(np.array(quat_xyzw, dtype=float))


# --- roll, pitch, yaw ---


@given(st.tuples(*[st.floats(-7.0, 7.0)] * 3).map(np.array))
def test_roll_pitch_yaw_turn_about_fixed_axes_in_that_order(rpy: np.ndarray) -> None:
    wanted = turn("z", rpy[2]) @ turn("y", rpy[1]) @ turn("x", rpy[0])
    # Angles within 1e-9 of a quarter turn, in units of a quarter turn, count as exact.
    assert_allclose(se3.rpy_to_matrix(rpy), wanted, atol=5e-9)
    quarters = rpy / (np.pi / 2)
    if np.abs(quarters - np.round(quarters)).min() > 1e-9:
        assert_allclose(se3.rpy_to_matrix(rpy), wanted, atol=ROUNDING)


def test_quarter_turns_written_with_ten_digits_give_clean_matrices() -> None:
    R = se3.rpy_to_matrix(np.array([1.5707963268, -3.1415926536, 0.0]))
    assert_array_equal(np.abs(R), [[1, 0, 0], [0, 0, 1], [0, 1, 0]])


near_upright = st.one_of(st.floats(-1.57, 1.57), small.map(lambda e: np.pi / 2 - e), small.map(lambda e: e - np.pi / 2))


@given(st.floats(-np.pi, np.pi), near_upright, st.floats(-np.pi, np.pi))
@example(0.3, np.pi / 2, 0.4)
@example(0.3, -np.pi / 2, 0.4)
@example(0.3, np.pi / 2 - 1e-10, 0.4)
@example(0.3, 1e-9 - np.pi / 2, 0.4)
def test_roll_pitch_yaw_of_a_rotation_give_it_back_even_when_the_pitch_is_upright(
    roll: float, pitch: float, yaw: float
) -> None:
    R = turn("z", yaw) @ turn("y", pitch) @ turn("x", roll)
    r, p, y = se3.matrix_to_rpy(R)
    assert abs(p) <= np.pi / 2
    # Near the upright pitch roll and yaw are badly known one by one, but what they make together is not.
    assert_allclose(turn("z", y) @ turn("y", p) @ turn("x", r), R, atol=1e-14)


# --- checking what comes in ---


def test_a_checked_pose_is_a_fresh_array_of_floats() -> None:
    T = np.eye(4, dtype=int)
    checked = se3.check_pose(T.T)
    assert checked.dtype == np.float64
    assert checked.flags.c_contiguous
    assert not np.shares_memory(checked, T)
    assert_array_equal(se3.check_pose([[1, 0, 0, 0.5], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])[0], [1, 0, 0, 0.5])
    T = np.eye(4)
    assert not np.shares_memory(se3.check_pose(T), T)


def test_rounding_in_the_bottom_row_is_removed() -> None:
    T = np.eye(4)
    T[3] = [1e-12, 0.0, -1e-11, 1.0 + 1e-12]  # what a chain of inverses leaves
    assert_array_equal(se3.check_pose(T)[3], [0.0, 0.0, 0.0, 1.0])


def bad(change: Any) -> np.ndarray:
    """The identity, changed."""
    T = np.eye(4)
    change(T)
    return T


def put(index: Any, value: Any) -> Any:
    """A change of one entry, row or block."""

    def change(T: np.ndarray) -> None:
        T[index] = value

    return change


@pytest.mark.parametrize(
    ("T", "words"),
    [
        (np.eye(3), r"shape \(3, 3\).*\(4, 4\)"),
        (np.eye(4)[None], r"shape \(1, 4, 4\).*\(4, 4\)"),
        (np.zeros(16), r"shape \(16,\).*\(4, 4\)"),
        ("here", r"\(4, 4\) array of numbers"),
        ([[1, 2], [3]], r"\(4, 4\) array of numbers"),
        (None, r"\(4, 4\)|NaN"),
        (bad(put((0, 3), np.nan)), "NaN or infinity"),
        (bad(put((1, 1), np.inf)), "NaN or infinity"),
        (bad(put(3, [0, 0, 1, 1])), r"bottom row \[0.0, 0.0, 1.0, 1.0\].*0 0 0 1"),
        (bad(put(3, [0, 0, 0, 2])), "bottom row"),
        (bad(put((0, 0), 1.0 + 1e-5)), r"not orthonormal \(by 2e-05, at most 1e-6\)"),
        (bad(put((0, 1), 2e-6)), "not orthonormal"),
        (bad(put((2, 2), -1.0)), "determinant -1: a reflection"),
        (np.zeros((4, 4)), "bottom row"),
    ],
)
def test_what_is_not_a_pose_is_refused_with_its_name_and_what_would_be_right(T: Any, words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words) as caught:
        se3.check_pose(T, "T_base_goal")
    assert caught.value.argument == "T_base_goal"
    assert str(caught.value).startswith("T_base_goal: ")
    assert isinstance(caught.value, IkSimError)


def test_a_rotation_of_seven_digits_passes_as_one() -> None:
    R = Rotation.from_rotvec([0.3, -0.7, 1.1]).as_matrix().round(7)
    assert_array_equal(se3.check_pose(se3.transform(R, np.ones(3)))[:3, :3], R)
