"""Robots load by name and by file, start inside their limits, and say where their numbers come from."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from ik_sim import robots, se3
from ik_sim.errors import IkSimError, InvalidArgumentError, RobotError, UnknownNameError, UrdfError
from ik_sim.robots import Control, data_folder, load_robot, read_toml, robot_names

CHECKOUT = Path(__file__).parents[1]
FILES = Path(__file__).parent / "data" / "urdf"

EXACT = 1e-11
"""[m] and [-]: double precision through seven joints, against numbers printed with 12 digits."""

# --- the robots that come along ---


def test_there_are_two_spatial_and_two_planar_arms() -> None:
    assert robot_names() == ("iiwa14", "planar2", "planar3", "ur5")
    families = {name: load_robot(name).chain.family for name in robot_names()}
    assert families == {"iiwa14": "srs", "planar2": "planar2", "planar3": "planar3", "ur5": "ur"}


@pytest.mark.parametrize("name", robot_names())
def test_a_robot_starts_inside_its_limits_and_has_limits_for_everything(name: str) -> None:
    robot = load_robot(name)
    chain = robot.chain
    assert chain.within_limits(robot.q_home)
    assert not robot.q_home.flags.writeable
    for limits in (chain.lower, chain.upper, chain.velocity_limits, chain.effort_limits):
        assert np.isfinite(limits).all()
    assert (chain.velocity_limits > 0.0).all()
    assert (chain.effort_limits > 0.0).all()


@pytest.mark.parametrize("name", robot_names())
def test_a_robot_is_away_from_singularities_at_home(name: str) -> None:
    robot = load_robot(name)
    J = robot.chain.jacobian(robot.q_home)
    rows = [0, 1] if robot.chain.n == 2 else [0, 1, 5] if robot.chain.family == "planar3" else range(6)
    assert np.linalg.svd(J[list(rows)], compute_uv=False)[-1] > 0.05  # well above any damping in use


@pytest.mark.parametrize("name", robot_names())
def test_a_robot_names_its_sources_and_its_licence(name: str) -> None:
    robot = load_robot(name)
    assert robot.source is not None
    for text in (robot.title, robot.source.kinematics, robot.source.dynamics, robot.source.limits):
        assert len(text) > 5
    assert robot.licence.startswith("BSD-3-Clause")
    assert "Redistribution" in (robot.folder / "LICENSE").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", robot_names())
def test_a_robot_s_file_gives_no_cause_for_warnings_and_its_meshes_are_there(name: str) -> None:
    robot = load_robot(name)
    assert robot.warnings == ()
    shapes = [shape for link in robot.model.links for shape in link.visuals]
    assert shapes
    assert all(shape.path is not None for shape in shapes if shape.kind == "mesh")
    assert all(link.inertial is not None for link in robot.model.links if link.visuals)


def test_the_ur5_has_the_frames_of_its_published_table() -> None:
    robot = load_robot("ur5")
    assert (robot.base_link, robot.tool_link) == ("base_link", "tool0")
    T = robot.chain.fk(np.zeros(6))
    assert_allclose(T[:3, 3], [-0.81725, -0.19145, -0.005491], atol=EXACT)
    assert_allclose(T[:3, :3], [[1.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]], atol=EXACT)
    assert_allclose(robot.chain.upper, np.full(6, 2.0 * np.pi), atol=1e-9)


def test_the_iiwa_is_the_fourteen_and_stands_upright_at_zero() -> None:
    robot = load_robot("iiwa14")
    assert robot.chain.joint_names == tuple(f"joint_{i}" for i in range(1, 8))
    T = robot.chain.fk(np.zeros(7))
    assert_allclose(T[:3, 3], [0.0, 0.0, 1.306], atol=EXACT)  # the small one ends at 1.266
    assert_allclose(T[:3, :3], np.eye(3), atol=EXACT)
    limits_deg = np.rad2deg(robot.chain.upper)
    assert_allclose(limits_deg, [170, 120, 170, 120, 170, 120, 175], atol=1e-9)
    elbow = robot.chain.fk([0.0, 0.0, 0.0, -0.5, 0.0, 0.0, 0.0])
    assert elbow[0, 3] > 0.1  # the maker's sign: joint 4 turned negative bends the arm forward


def test_the_planar_arms_stay_in_their_plane() -> None:
    for name, reach in (("planar2", 0.9), ("planar3", 0.9)):
        robot = load_robot(name)
        assert robot.tool_link == "tip"
        assert_allclose(robot.chain.fk(np.zeros(robot.chain.n))[:3, 3], [reach, 0.0, 0.0], atol=EXACT)
        T = robot.chain.fk_batch(robot.chain.random_q(np.random.default_rng(0), 20))
        assert_array_equal(T[:, 2, 3], 0.0)


# --- cutting another chain ---


def test_another_tool_link_keeps_home_for_the_joints_that_remain() -> None:
    whole = load_robot("ur5")
    half = load_robot("ur5", tool_link="wrist_1_link")
    assert half.chain.joint_names == whole.chain.joint_names[:4]
    assert_array_equal(half.q_home, whole.q_home[:4])
    upper = load_robot("ur5", base_link="upper_arm_link")
    assert_array_equal(upper.q_home, whole.q_home[2:])
    assert (upper.base_link, upper.tool_link) == ("upper_arm_link", "tool0")


def test_a_tool_in_the_hand_is_added_to_a_named_robot_and_to_a_bare_file() -> None:
    T_tool = se3.transform(np.eye(3), np.array([0.0, 0.0, 0.15]))
    for source in ("ur5", load_robot("ur5").urdf_path):
        plain, tooled = load_robot(source), load_robot(source, T_tool=T_tool)
        assert_allclose(tooled.chain.fk(plain.q_home), plain.chain.fk(plain.q_home) @ T_tool, atol=EXACT)


def test_an_unknown_link_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match=r"no link 'tool1' \(did you mean 'tool0'\?\); known: base_link"):
        load_robot("ur5", tool_link="tool1")


# --- names and paths ---


def test_an_unknown_robot_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match=r"no robot 'ur55' \(did you mean 'ur5'\?\); known: iiwa14, planar2"):
        load_robot("ur55")
    with pytest.raises(UnknownNameError, match="no robot ''"):
        load_robot("")
    with pytest.raises(InvalidArgumentError, match="a robot's name or a path, not int"):
        load_robot(5)  # type: ignore[arg-type]


def test_a_bare_urdf_starts_in_the_middle_of_its_limits() -> None:
    robot = load_robot(FILES / "guarded.urdf")
    assert (robot.name, robot.title, robot.tool_link) == ("guarded", "guarded", "three")
    assert robot.chain.lower[2] > 0.0  # zero would be illegal
    assert_array_equal(robot.q_home, [0.0, 0.0, 1.0])
    assert robot.control == Control(position_gain=1.0, velocity_gain=1.0)
    assert (robot.source, robot.licence) == (None, "")
    assert robot.folder == FILES
    assert robot.urdf_path == FILES / "guarded.urdf"
    assert "effort limit 0, with which a joint can't move: kept" in robot.warnings


def test_paths_may_be_relative_and_hold_spaces_and_accents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "mi robot café"
    folder.mkdir()
    (folder / "guarded.urdf").write_bytes((FILES / "guarded.urdf").read_bytes())
    monkeypatch.chdir(tmp_path)
    for path in ("mi robot café/guarded.urdf", str(folder / "guarded.urdf"), folder / "guarded.urdf"):
        robot = load_robot(path)
        assert robot.urdf_path == folder / "guarded.urdf"
        assert robot.urdf_path.is_absolute()


def test_a_folder_in_the_working_directory_does_not_hide_a_robot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ur5").mkdir()
    monkeypatch.chdir(tmp_path)
    assert load_robot("ur5").urdf_path == data_folder("robots") / "ur5" / "ur5.urdf"
    with pytest.raises(UrdfError, match="ur5: is a folder; a URDF file is wanted"):
        load_robot("./ur5")


def test_a_path_that_leads_nowhere_is_a_missing_file_and_not_an_unknown_name() -> None:
    with pytest.raises(UrdfError, match="no such file"):
        load_robot("ur5.urdf")
    with pytest.raises(UrdfError, match="no such file"):
        load_robot("somewhere/ur5")


def test_a_bare_urdf_with_several_tips_asks_for_the_tool() -> None:
    with pytest.raises(InvalidArgumentError, match=r"tool_link: must be given, .* 3 tips .*: lid, camera, tool"):
        load_robot(FILES / "rail_arm.urdf")
    assert load_robot(FILES / "rail_arm.urdf", tool_link="tool").chain.n == 4


# --- the data folder ---


def test_the_checkout_s_folder_is_used_unless_the_package_holds_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert data_folder("robots") == CHECKOUT / "robots"
    monkeypatch.setattr(robots, "__file__", str(tmp_path / "ik_sim" / "robots.py"))
    with pytest.raises(IkSimError, match=r"'robots' of ik_sim is missing; looked for .*data.robots and .*robots"):
        data_folder("robots")
    (tmp_path / "robots").mkdir()
    assert data_folder("robots") == tmp_path / "robots"
    assert robot_names() == ()
    (tmp_path / "ik_sim" / "data" / "robots").mkdir(parents=True)  # as in a wheel
    assert data_folder("robots") == tmp_path / "ik_sim" / "data" / "robots"
    with pytest.raises(UnknownNameError, match="known: robots, tasks"):
        data_folder("videos")


def test_loading_a_robot_needs_no_physics_engine() -> None:
    program = "import sys, ik_sim.robots as r; r.load_robot('ur5'); print('pybullet' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


# --- robot.toml ---

GOOD = """
name = "guarded"
title = "Guarded arm"
urdf = "guarded.urdf"
base_link = "base"
tool_link = "three"
home = [0.1, -0.2, 1]

[control]
position_gain = 0.3

[source]
kinematics = "our own"
dynamics = "our own"
limits = "our own"
licence = "BSD-3-Clause"
"""


def robot_folder(parent: Path, toml: str | bytes, name: str = "guarded") -> Path:
    folder = parent / name
    folder.mkdir(exist_ok=True)
    (folder / "guarded.urdf").write_bytes((FILES / "guarded.urdf").read_bytes())
    (folder / "robot.toml").write_bytes(toml if isinstance(toml, bytes) else toml.encode())
    return folder


def test_a_folder_with_a_robot_toml_is_a_robot_wherever_it_lies(tmp_path: Path) -> None:
    folder = robot_folder(tmp_path, GOOD)
    for path in (folder, str(folder), folder / "robot.toml"):
        robot = load_robot(path)
        assert (robot.name, robot.title, robot.folder) == ("guarded", "Guarded arm", folder)
        assert_array_equal(robot.q_home, [0.1, -0.2, 1.0])
        assert robot.control == Control(position_gain=0.3)
        assert robot.licence == "BSD-3-Clause"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("home =", "hme =", r"unknown key 'hme' \(did you mean 'home'\?\); known: name, title"),
        ("position_gain", "positoin_gain", "unknown key 'control.positoin_gain' .did you mean 'position_gain'"),
        ("[source]", "[sources]", r"unknown key 'sources' \(did you mean 'source'\?\)"),
        ("home = [0.1, -0.2, 1]", "", "the key 'home' is missing"),
        ('licence = "BSD-3-Clause"', "", "the key 'source.licence' is missing"),
        ("[0.1, -0.2, 1]", "[0.1, -0.2]", "home: 2 numbers given, 3 wanted: free, kept, open"),
        ("[0.1, -0.2, 1]", "[0.1, -0.2, 1, 0]", "home: 4 numbers given, 3 wanted: free, kept, open"),
        ("[0.1, -0.2, 1]", "[0.1, -0.2, 0.4]", r"home: open at 0.4 is outside its limits \[0.5, 1.5\]"),
        ("[0.1, -0.2, 1]", '[0.1, "x", 1]', r"home\[1\]: a number is wanted, not 'x'"),
        ("[0.1, -0.2, 1]", "[0.1, true, 1]", r"home\[1\]: a number is wanted, not True"),
        ("[0.1, -0.2, 1]", "[0.1, nan, 1]", r"home\[1\]: a finite number is wanted, not nan"),
        ("[0.1, -0.2, 1]", "0.1", r"home: a list is wanted, not 0.1"),
        ('"Guarded arm"', "3", "title: a text is wanted, not 3"),
        ("[control]\nposition_gain = 0.3", "control = 3", r"control: a table is wanted, \[control\], not 3"),
        ("position_gain = 0.3", "position_gain = 0", "control.position_gain: is 0; wanted is more than 0, at most 1"),
        ("position_gain = 0.3", "velocity_gain = 1.5", "control.velocity_gain: is 1.5; wanted is 0 to 1"),
        ('tool_link = "three"', 'tool_link = "thre"', "base_link, tool_link: no link 'thre' .did you mean 'three'"),
        ('base_link = "base"', 'base_link = "three"', "base_link, tool_link: .*is the base link"),
        ('name = "guarded"', 'name = "other"', "name: is 'other', but the folder is named 'guarded'"),
        ("home", "= home", r"is not valid TOML: .* \(at line \d+, column \d+\)"),
        ("home", "home = 1\nhome", "is not valid TOML"),
    ],
)  # fmt: skip
def test_a_damaged_robot_toml_is_refused_with_its_key_and_what_would_be_right(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    assert old in GOOD
    folder = robot_folder(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(RobotError, match=words) as caught:
        load_robot(folder)
    assert str(caught.value).startswith(f"{folder / 'robot.toml'}: ")


def test_what_is_wrong_with_the_urdf_is_said_of_the_urdf(tmp_path: Path) -> None:
    folder = robot_folder(tmp_path, GOOD.replace("guarded.urdf", "missing.urdf"))
    with pytest.raises(UrdfError, match=r"missing.urdf: no such file; .* holds: guarded.urdf"):
        load_robot(folder)
    folder = robot_folder(tmp_path, "name = 'caf\u00e9'".encode("latin-1"))
    with pytest.raises(RobotError, match="is not UTF-8"):
        load_robot(folder)
    with pytest.raises(RobotError, match="no such file"):
        load_robot(tmp_path / "nowhere" / "robot.toml")


def test_gains_outside_of_their_range_are_refused() -> None:
    for gain in (0.0, -0.1, 1.1, float("nan"), float("inf")):
        with pytest.raises(InvalidArgumentError, match="position_gain"):
            Control(position_gain=gain)
    with pytest.raises(InvalidArgumentError, match="velocity_gain"):
        Control(velocity_gain=-1.0)


@dataclass(frozen=True)
class Inner:
    """A table of a table."""

    count: int
    on: bool = False


@dataclass(frozen=True)
class Outer:
    """Every type that `read_toml` understands."""

    text: str
    number: float
    names: tuple[str, ...] = ()
    inner: Inner | None = None
    limit: float | None = None


def test_toml_becomes_a_dataclass_with_its_tables_and_optional_keys(tmp_path: Path) -> None:
    path = tmp_path / "outer.toml"
    path.write_text('text = "a"\nnumber = 2\nnames = ["x", "y"]\nlimit = 1e3\n[inner]\ncount = 3\non = true\n')
    assert read_toml(path, Outer, RobotError) == Outer("a", 2.0, ("x", "y"), Inner(3, True), 1000.0)
    path.write_text('text = "a"\nnumber = 2.5\n')
    assert read_toml(path, Outer, RobotError) == Outer("a", 2.5)
    for text, words in (
        ('text = "a"\nnumber = 1\n[inner]\ncount = 1.5', "inner.count: a whole number is wanted, not 1.5"),
        ('text = "a"\nnumber = 1\n[inner]\ncount = 1\non = 1', "inner.on: true or false is wanted, not 1"),
        ('text = "a"\nnumber = 1\n[inner]\ncunt = 1', "unknown key 'inner.cunt'"),
        ('text = "a"\nnumber = 1' + "0" * 400, "number: a finite number is wanted"),
    ):
        path.write_text(text)
        with pytest.raises(RobotError, match=words):
            read_toml(path, Outer, RobotError)


@given(
    start=st.floats(0.0, 1.0),
    length=st.integers(0, 30),
    piece=st.one_of(
        st.text(max_size=5), st.sampled_from(["[", "]", "=", '"', "\n", "nan", "{}", "[[a]]", "1979-05-27"])
    ),
)
@settings(max_examples=150)
def test_mutilated_robot_files_are_read_or_refused_but_never_crash(start: float, length: int, piece: str) -> None:
    at = int(start * len(GOOD))
    text = GOOD[:at] + piece + GOOD[at + length :]
    with tempfile.TemporaryDirectory() as parent:
        folder = robot_folder(Path(parent), text.encode("utf-8", "surrogatepass"))
        try:
            robot = load_robot(folder)
        except IkSimError:
            return
        assert robot.chain.within_limits(robot.q_home)
