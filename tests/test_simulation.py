"""Physics: what goes into PyBullet, what comes out, and what must not get out."""

import gc
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ik_sim.control import CONTROL_MODES, ControlSettings
from ik_sim.errors import DisplayError, IkSimError, InvalidArgumentError, MissingDependencyError
from ik_sim.robots import load_robot
from ik_sim.se3 import rotation_exp, transform
from ik_sim.simulation import UNSTATED_TORQUE, Simulation
from ik_sim.solvers import SOLVERS, load_solver
from ik_sim.trajectory import line_poses

UR5, IIWA, PLANAR3 = load_robot("ur5"), load_robot("iiwa14"), load_robot("planar3")

LINK = '<inertial><mass value="0.5"/><inertia ixx="0.01" ixy="0" ixz="0" iyy="0.01" iyz="0" izz="0.01"/></inertial>'


def arm(
    tmp_path: Path, extra: str = "", limits: str = 'effort="20" velocity="2"', tip: str = "", axis: str = "0 0 1"
) -> Path:
    """A file with two moving joints j1, j2 about `axis`, 0.3 m links, and `extra` elements."""
    joint = (
        '<joint name="{0}" type="revolute"><parent link="{1}"/><child link="{2}"/><origin xyz="{3} 0 0"/>'
        f'<axis xyz="{axis}"/><limit lower="-2" upper="2" {limits}/></joint>'
    )
    path = tmp_path / "arm.urdf"
    path.write_text(
        f'<robot name="arm"><link name="base">{LINK}</link><link name="l1">{LINK}</link><link name="l2">{LINK}</link>'
        + joint.format("j1", "base", "l1", 0)
        + joint.format("j2", "l1", "l2", 0.3)
        + f'<link name="tip">{tip}</link><joint name="fix" type="fixed"><parent link="l2"/><child link="tip"/>'
        f'<origin xyz="0.3 0 0"/></joint>{extra}</robot>'
    )
    return path


# --- kinematics and dynamics ---


@pytest.mark.parametrize("robot", [UR5, IIWA], ids=lambda robot: robot.name)
def test_pybullet_puts_the_tool_where_forward_kinematics_says_also_on_a_tilted_base(robot):
    T_world_base = transform(rotation_exp(np.array([0.3, -0.5, 1.0])), np.array([1.0, 2.0, 3.0]))
    rng = np.random.default_rng(0)
    with Simulation(robot, T_world_base=T_world_base) as simulation:
        for _ in range(50):
            q = robot.chain.random_q(rng)
            simulation.reset(q)
            np.testing.assert_array_equal(simulation.q, q)
            # PyBullet itself is good to about 3e-7 m.
            np.testing.assert_allclose(simulation.T_base_tool, robot.chain.fk(q), atol=1e-6)
        np.testing.assert_allclose(simulation.link_pose(robot.chain.base_link), T_world_base, atol=1e-6)


def gravity_torques(robot, q: np.ndarray, payload: float = 0.0) -> np.ndarray:
    """What holds the arm still: the slope of its potential energy, from the file's masses alone."""

    def energy(q: np.ndarray) -> float:
        total = 0.0
        for link in robot.model.links:
            if link.inertial is None or link.name == robot.chain.base_link:
                continue
            chain = robot.model.chain(robot.chain.base_link, link.name)
            height = (chain.fk(q[: chain.n]) @ link.inertial.T_link_com)[2, 3]
            total += 9.81 * link.inertial.mass * height
        return total + 9.81 * payload * robot.chain.fk(q)[2, 3]

    step = 1e-5
    return np.array([(energy(q + step * e) - energy(q - step * e)) / (2 * step) for e in np.eye(robot.chain.n)])


@pytest.mark.parametrize("robot", [UR5, IIWA], ids=lambda robot: robot.name)
@pytest.mark.parametrize("payload", [0.0, 2.0])
def test_the_motors_hold_exactly_the_weight_of_the_links_and_the_payload(robot, payload):
    q = robot.q_home + 0.1
    with Simulation(robot, ControlSettings(payload=payload), q=q) as simulation:
        simulation.step(10)
        # Central differences of the energy are good to about 1e-8.
        np.testing.assert_allclose(simulation.torques, gravity_torques(robot, q, payload), atol=1e-5)


def test_a_payload_beside_the_tool_pulls_with_its_lever():
    q = np.zeros(6)  # the UR5 stretched out level
    torque = {}
    for offset in (0.0, 0.1):  # along the tool's x axis, which is the base's x axis here
        with Simulation(UR5, ControlSettings(payload=2.0, payload_offset=(offset, 0.0, 0.0)), q=q) as simulation:
            simulation.step(5)
            torque[offset] = simulation.torques[1]
    assert abs(torque[0.1] - torque[0.0]) == pytest.approx(2.0 * 9.81 * 0.1, abs=1e-6)


def test_without_gravity_a_resting_arm_needs_no_torque():
    with Simulation(UR5, ControlSettings(gravity=(0.0, 0.0, 0.0))) as simulation:
        simulation.step(10)
        assert np.abs(simulation.torques).max() < 1e-9


def test_a_frame_without_mass_properties_weighs_nothing(tmp_path):
    robot = load_robot(arm(tmp_path, axis="0 1 0"))  # PyBullet would take 1 kg for the tip
    with Simulation(robot, q=np.zeros(2)) as simulation:
        simulation.step(5)
        # Only l2 hangs beyond joint 1, half a kilogram at 0.3 m.
        assert abs(simulation.torques[0]) == pytest.approx(0.5 * 9.81 * 0.3, abs=1e-6)
        assert simulation.warnings == ()


# --- driving ---


@pytest.mark.parametrize("robot", [UR5, IIWA], ids=lambda robot: robot.name)
def test_at_full_gain_every_setpoint_is_met_within_its_step(robot):
    with Simulation(robot) as simulation:
        motion = simulation.move(robot.q_home + 0.01, 24)  # slow enough to start within a step's impulse
        # The constraint is solved exactly; what is left is rounding.
        assert np.abs(motion.q - motion.setpoint).max() < 1e-12
        assert not motion.torque_saturated.any()
        np.testing.assert_array_equal(motion.setpoint[-1], robot.q_home + 0.01)
        np.testing.assert_array_equal(motion.q[-1], simulation.q)


def test_the_direct_constraint_solver_agrees_with_pybullets_iterative_one():
    ends = []
    for choice in (
        ControlSettings(torque_scale=0.1),
        ControlSettings(torque_scale=0.1, constraint_solver="iterative", solver_iterations=500),
    ):
        with Simulation(UR5, choice) as simulation:
            ends.append(simulation.move(UR5.q_home + 0.2, 60).q[-1])
    np.testing.assert_allclose(ends[0], ends[1], atol=1e-6)  # with saturated motors, after a quarter of a second


@pytest.mark.parametrize("mode", CONTROL_MODES)
def test_a_step_cut_into_substeps_is_that_many_shorter_steps_of_which_the_last_is_logged(mode):
    q_end, weak = UR5.q_home + 0.3, {"mode": mode, "position_gain": 0.4, "torque_scale": 0.3}  # lags and saturates
    with Simulation(UR5, ControlSettings(physics_rate=100.0, substeps=5, **weak)) as simulation:
        coarse = simulation.move(q_end, 12)
        assert simulation.time_step == 0.01
        assert simulation.settings()["substeps"] == 5
        simulation.step(3)
        held = simulation.q
    with Simulation(UR5, ControlSettings(physics_rate=500.0, **weak)) as simulation:
        fine = simulation.move(q_end, 60)
        simulation.step(15)
        np.testing.assert_array_equal(held, simulation.q)
    assert len(coarse.q) == 12
    assert fine.torque_saturated.any()
    np.testing.assert_array_equal(coarse.states, fine.states[4::5])
    np.testing.assert_array_equal(coarse.setpoint, fine.setpoint[4::5])


def test_steps_at_low_gain_lag_as_the_gain_says():
    q_end = np.array([0.4, 0.9, -0.5])
    with Simulation(PLANAR3, ControlSettings(position_gain=0.1)) as simulation:
        motion = simulation.move(q_end, 48)
    q = PLANAR3.q_home
    for k, setpoint in enumerate(motion.setpoint):
        q = q + 0.1 * (setpoint - q)
        np.testing.assert_allclose(motion.q[k], q, atol=1e-9)


def test_lag_of_a_streamed_line_falls_with_the_gain_from_millimetres_to_microns():
    q = np.array([0.0, -1.2, 1.5, -1.8707963267948966, -1.5707963267948966, 0.0])
    T_end = UR5.chain.fk(q)
    T_end[:3, 3] += [0.25, -0.3, 0.2]
    solver, seed, joints = load_solver("closed_form"), q, []
    for T in line_poses(UR5.chain.fk(q), T_end, np.arange(1, 481) / 480):
        seed = solver.solve(UR5.chain, T, seed).q
        joints.append(seed)
    worst = {}
    for gain in (0.1, 1.0):
        with Simulation(UR5, ControlSettings(position_gain=gain), q=q) as simulation:
            errors = []
            for command in joints:
                simulation.move(command, 1)
                errors.append(np.linalg.norm(UR5.chain.fk(simulation.q)[:3, 3] - UR5.chain.fk(command)[:3, 3]))
            worst[gain] = max(errors)
    # 0.1 is PyBullet's default: with the setpoint of the coming step it lags 7.4 mm where the present one lags 8.2.
    assert 0.007 <= worst[0.1] <= 0.0095
    assert worst[1.0] <= 0.0006


def test_a_weak_arm_falls_and_says_which_motors_gave_all_they_could():
    goal = np.array([0.3, -1.0, 1.3, -1.6, -1.4, 0.2])
    with Simulation(UR5, ControlSettings(torque_limit=20.0), q=np.zeros(6)) as simulation:
        simulation.move(goal, 1)
        motion = simulation.move(goal, 479)
    assert 0.3 < np.linalg.norm(UR5.chain.fk(motion.q[-1])[:3, 3] - UR5.chain.fk(goal)[:3, 3]) < 1.2
    saturated = dict(zip(UR5.chain.joint_names, motion.torque_saturated.mean(axis=0), strict=True))
    assert min(saturated["shoulder_lift_joint"], saturated["elbow_joint"]) > 0.5
    assert saturated["wrist_1_joint"] == 0.0
    assert (np.abs(motion.torque) <= 20.0 * (1 + 1e-9)).all()
    with Simulation(UR5, q=np.zeros(6)) as simulation:  # with the real motors
        simulation.move(goal, 480)
        assert np.linalg.norm(UR5.chain.fk(simulation.q)[:3, 3] - UR5.chain.fk(goal)[:3, 3]) < 1e-4


def test_no_joint_runs_faster_than_it_may():
    far = UR5.q_home.copy()
    far[0] += 1.5
    with Simulation(UR5, ControlSettings(speed_scale=0.5)) as simulation:
        simulation.command(far)
        simulation.step(60)
        limit = simulation.speed_limits[0]
        assert limit == pytest.approx(0.5 * np.pi)
        assert simulation.velocities[0] == pytest.approx(limit, rel=1e-6)
        simulation.reload()  # the limit outlives emptying the world
        simulation.command(far)
        simulation.step(60)
        assert simulation.velocities[0] == pytest.approx(limit, rel=1e-6)
        motion = simulation.move(far, 10)
        assert motion.speed_saturated[:, 0].all()


def test_a_command_beyond_a_limit_is_clipped_and_told():
    with Simulation(PLANAR3) as simulation:
        upper = PLANAR3.chain.upper[1]
        (clipped,) = simulation.command([0.0, 3.0, 0.0])
        assert clipped.joint == PLANAR3.chain.joint_names[1]
        assert str(clipped) == f"{clipped.joint}: commanded 3 clipped to {upper:.6g}"
        simulation.step(960)
        assert simulation.q[1] == pytest.approx(upper, abs=1e-6)
        assert simulation.move([0.0, 0.0, 0.0], 10).clipped == ()


@pytest.mark.parametrize("robot", [UR5, IIWA, PLANAR3], ids=lambda robot: robot.name)
def test_every_joint_stops_at_each_of_its_limits_and_says_so(robot):
    chain = robot.chain
    with Simulation(robot) as simulation:
        for j, name in enumerate(chain.joint_names):
            for limit, beyond in ((chain.lower[j], -0.4), (chain.upper[j], 0.4)):
                q = robot.q_home.copy()
                q[j] = limit + beyond
                (clipped,) = simulation.move(q, 3).clipped
                assert (clipped.joint, clipped.commanded, clipped.applied) == (name, q[j], limit)
                assert simulation.setpoint[j] == limit
                simulation.reset(q)
                simulation.step(5)
                assert simulation.q[j] == pytest.approx(limit, abs=1e-9)


def test_wrong_commands_are_refused():
    with Simulation(PLANAR3) as simulation:
        with pytest.raises(InvalidArgumentError, match="2 given, 3 wanted"):
            simulation.command([0.0, 0.0])
        with pytest.raises(InvalidArgumentError, match="NaN"):
            simulation.move([0.0, np.nan, 0.0], 5)
        with pytest.raises(InvalidArgumentError, match="steps: must be 1 or more"):
            simulation.move([0.0, 0.0, 0.0], 0)


def test_mimic_joints_follow_and_fingers_stay(tmp_path):
    slide = (
        '<joint name="{0}" type="prismatic"><parent link="l2"/><child link="{1}"/><axis xyz="0 1 0"/>'
        '<limit lower="0.01" upper="0.04" effort="10" velocity="0.1"/>{2}</joint><link name="{1}">' + LINK + "</link>"
    )
    third = (
        f'<link name="l3">{LINK}</link><joint name="j3" type="revolute"><parent link="tip"/><child link="l3"/>'
        '<axis xyz="0 0 1"/><limit lower="-3" upper="3" effort="20" velocity="4"/>'
        '<mimic joint="j2" multiplier="-0.5" offset="0.1"/></joint>'
    )
    extra = third + slide.format("left", "f1", "") + slide.format("right", "f2", '<mimic joint="left" multiplier="2"/>')
    robot = load_robot(arm(tmp_path, extra), tool_link="l3")
    assert robot.chain.joint_names == ("j1", "j2")
    with Simulation(robot, q=np.zeros(2)) as simulation:
        motion = simulation.move([0.5, 0.8], 120)
        np.testing.assert_allclose(motion.q[-1], [0.5, 0.8], atol=1e-9)
        positions = simulation.joint_positions()
    assert positions["j3"] == pytest.approx(-0.3, abs=1e-9)
    assert positions["left"] == pytest.approx(0.01, abs=1e-6)
    assert positions["right"] == pytest.approx(0.02, abs=1e-6)


def test_joints_without_stated_torque_move_with_a_stated_one_and_say_so(tmp_path, caplog):
    robot = load_robot(arm(tmp_path, limits='effort="0" velocity="0"'))
    with Simulation(robot, ControlSettings(gravity=(0.0, 0.0, 0.0)), q=np.zeros(2)) as simulation:
        np.testing.assert_array_equal(simulation.torque_limits, UNSTATED_TORQUE)
        motion = simulation.move([0.5, 0.5], 120)
    np.testing.assert_allclose(motion.q[-1], 0.5, atol=1e-9)
    assert "j1 states a torque limit of 0; simulated with 1000" in caplog.text
    assert any("j2 states a speed limit of 0" in warning for warning in simulation.warnings)


# --- sessions ---


def drive(simulation: Simulation) -> bytes:
    rng = np.random.default_rng(5)
    parts = []
    for _ in range(20):
        motion = simulation.move(UR5.q_home + 0.3 * rng.standard_normal(6), 12)
        parts += [motion.states.tobytes()]
    return b"".join(parts)


def test_the_same_commands_give_the_same_bits_fresh_reset_reloaded_and_in_another_process():
    weak = ControlSettings(torque_scale=0.4, position_gain=0.5)  # with saturation, the hardest case
    with Simulation(UR5, weak) as simulation:
        first = drive(simulation)
        simulation.reset()
        assert drive(simulation) == first
        simulation.reload()
        assert drive(simulation) == first
    with Simulation(UR5, weak) as simulation:
        assert drive(simulation) == first
    program = (
        "import sys, hashlib; sys.path.insert(0, sys.argv[1]); import test_simulation as t\n"
        "with t.Simulation(t.UR5, t.ControlSettings(torque_scale=0.4, position_gain=0.5)) as s:\n"
        "    sys.stdout.write(t.drive(s).hex())"
    )
    folder = str(Path(__file__).parent)
    fresh = subprocess.run([sys.executable, "-c", program, folder], capture_output=True, text=True, check=True).stdout
    assert fresh == first.hex()


def test_two_simulations_do_not_meet():
    with Simulation(IIWA, q=np.zeros(7)) as a, Simulation(IIWA, q=np.zeros(7)) as b:
        before = a.q.tobytes()
        b.move(IIWA.q_home, 100)
        assert a.q.tobytes() == before
        assert np.array_equal(a.q, np.zeros(7))
        a.step()
        np.testing.assert_allclose(a.q, 0.0, atol=1e-12)
        assert np.abs(b.q - IIWA.q_home).max() < np.abs(IIWA.q_home).max()


@pytest.mark.parametrize("name", [*SOLVERS])
def test_solving_leaves_the_simulation_alone_and_does_not_look_at_it(name):
    T, answers = IIWA.chain.fk(IIWA.q_home), []
    with Simulation(IIWA) as simulation:
        for offset in (0.1, -0.2):
            simulation.move(IIWA.q_home + offset, 10)

            def state(of: Simulation = simulation):
                return of._p.getJointStates(of._body, of._all_indices, physicsClientId=of._client)

            before = state()
            answers.append(load_solver(name).solve(IIWA.chain, T, IIWA.q_home + 0.05).q.tobytes())
            assert state() == before
    assert answers[0] == answers[1]


def test_an_edited_robot_file_is_read_anew(tmp_path):
    path = arm(tmp_path)
    with Simulation(load_robot(path), q=np.zeros(2)) as simulation:
        assert simulation.T_base_tool[0, 3] == pytest.approx(0.6, abs=1e-6)  # PyBullet reads floats
    path.write_text(path.read_text().replace('xyz="0.3 0 0"', 'xyz="0.5 0 0"'))
    with Simulation(load_robot(path), q=np.zeros(2)) as simulation:
        assert simulation.T_base_tool[0, 3] == pytest.approx(1.0, abs=1e-6)


def test_closing_twice_is_fine_and_what_comes_after_is_refused():
    simulation = Simulation(PLANAR3)
    simulation.close()
    simulation.close()
    assert simulation.closed
    for action in (simulation.step, simulation.reset, simulation.reload, simulation.joint_positions):
        with pytest.raises(IkSimError, match="this simulation is closed"):
            action()


def test_an_exception_closes_the_session():
    with pytest.raises(RuntimeError, match="mine"), Simulation(PLANAR3) as simulation:
        raise RuntimeError("mine")
    assert simulation.closed


def test_a_dropped_session_is_closed_too():
    simulation = Simulation(PLANAR3)
    p, client = simulation._p, simulation._client
    del simulation
    gc.collect()
    assert not p.isConnected(client)


def resident_mb() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def test_a_thousand_resets_keep_their_memory():
    with Simulation(UR5) as simulation:
        for _ in range(50):
            simulation.reset()
        before = resident_mb()
        for k in range(1000):
            simulation.reset(UR5.q_home + 1e-4 * k)
            simulation.step()
        assert resident_mb() - before < 5.0


def test_stepping_costs_little_more_than_the_engines_own_calls():
    """A setpoint, a step and a whole reading for each physics step: what Python adds is the small part."""
    program = """
import time
from ik_sim.robots import load_robot
from ik_sim.simulation import Simulation
robot = load_robot("ur5")
with Simulation(robot) as s:
    p, body, joints, client = s._p, s._body, s._arm_indices, s._client
    far = [robot.q_home + 0.002 * k for k in range(40)]
    def logged():
        for q in far: s.move(q, 48)
    def bare():
        for q in far:
            target = q.tolist()
            for _ in range(48):
                p.setJointMotorControlArray(body, joints, p.POSITION_CONTROL, targetPositions=target,
                    positionGains=[1.0] * 6, velocityGains=[1.0] * 6, forces=s._arm_forces, physicsClientId=client)
                p.stepSimulation(physicsClientId=client)
                p.getJointStates(body, joints, physicsClientId=client)
    def cpu(f):
        s.reset()
        began = time.process_time()
        f()
        return time.process_time() - began
    pairs = [(cpu(bare), cpu(logged)) for _ in range(7)]
    a, b = (min(column) for column in zip(*pairs))
    print(b / a, 40 * 48 / b)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    ratio, rate = map(float, done.stdout.split())
    # 1.05 to 1.2 measured; a loop that reads by name or makes arrays in each step takes 1.5 and more.
    assert ratio < 1.4, f"{rate:.0f} steps a second of CPU time"


def test_two_hundred_reloads_keep_their_memory():
    with Simulation(UR5) as simulation:
        for _ in range(20):
            simulation.reload()
        before = resident_mb()
        for _ in range(200):
            simulation.reload()
        assert resident_mb() - before < 10.0


# --- manners ---


def test_physics_prints_nothing_to_stdout():
    program = (
        "from ik_sim.robots import load_robot; from ik_sim.simulation import Simulation\n"
        "print('before')\n"
        "with Simulation(load_robot('ur5')) as s:\n    s.step(3)\n    s.reload()\n"
        "print('after')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "before\nafter\n"
    assert "build time" not in done.stderr


def test_a_window_without_a_display_is_an_ordinary_error(monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    with pytest.raises(DisplayError, match="DISPLAY is not set; run without --gui"):
        Simulation(PLANAR3, gui=True)
    monkeypatch.setenv("DISPLAY", ":987")
    with pytest.raises(DisplayError, match="no window possible"):
        Simulation(PLANAR3, gui=True)


def test_without_pybullet_the_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pybullet", None)
    with pytest.raises(MissingDependencyError, match=r"physics needs PyBullet.*pip install pybullet"):
        Simulation(PLANAR3)


@pytest.mark.display
def test_a_window_opens_where_there_is_a_display(display):
    program = (
        "from ik_sim.robots import load_robot; from ik_sim.simulation import Simulation\n"
        "with Simulation(load_robot('ur5'), gui=True) as s:\n    s.move(s.robot.q_home + 0.01, 24)\n    print(s.q[0])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120,
        env={**os.environ, "DISPLAY": display},
    )  # fmt: skip
    assert float(done.stdout) == pytest.approx(0.01, abs=1e-9)
