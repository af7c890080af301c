"""`ik-sim solve`: one target, from the command line, with an answer that a person can read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from ik_sim.errors import InvalidArgumentError

if TYPE_CHECKING:  # what is heavy is imported inside `run`
    from ik_sim.chain import Chain
    from ik_sim.robots import Robot
    from ik_sim.solvers import Solution, SolutionSet, Trace
    from ik_sim.target import Target

PASS, NOT_CONVERGED = 0, 1
Numbers3 = tuple[float, float, float]
SHOWN = 24  # rows of a long list that are printed; the JSON holds all


@dataclass(frozen=True)
class Solve:
    """Find the joints for one target, and say how near they come.

    The target is a pose (--xyz with an orientation, or --matrix), a point (--point), a point with a direction of the
    tool's z axis (--xyz with --axis), or what given joints reach (--q). Lengths in metres, in axes of the base link.
    Exit code 0: converged; 1: not; 2: the question can't be asked like that.
    """

    robot: tyro.conf.Positional[str]
    """Name of a robot (see `ik-sim robots`), or the path of a URDF."""
    xyz: Numbers3 | None = None
    """Where the tool must be [m]."""
    rpy: Numbers3 | None = None
    """Its roll, pitch and yaw [rad]."""
    rpy_deg: Numbers3 | None = None
    """Its roll, pitch and yaw [deg]."""
    quat_xyzw: tuple[float, float, float, float] | None = None
    """Its orientation as a quaternion x y z w, of any length."""
    matrix: tuple[float, ...] | None = None
    """The whole pose: 16 numbers row by row, or 12 without the bottom row."""
    point: Numbers3 | None = None
    """Only where the tool must be [m]; any orientation will do."""
    axis: Numbers3 | None = None
    """With --xyz: the direction of the tool's z axis; the turn about it is free."""
    q: tuple[float, ...] | None = None
    """Joints whose tool pose is the target [rad or m]."""
    seed_q: tuple[float, ...] | None = None
    """Where the arm is now [rad or m]; its home posture when left out."""
    all: bool = False
    """List every solution inside the limits, nearest to the seed first (chains with a closed form)."""
    arm_angle_deg: float | None = None
    """Seven-joint arms: the solutions with the elbow turned by this angle about the line from shoulder to wrist."""
    solver: str = "auto"
    """Name of a solver, or path/to/file.py:Class for your own."""
    set: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """key=value: a setting of the solver, such as max_iterations=50."""
    position_tolerance: float | None = None
    """How near is near enough [m]; the solver's own (1e-6) when left out."""
    rotation_tolerance: float | None = None
    """By what angle it may be off [rad]; the solver's own (1e-6) when left out."""
    trace: bool = False
    """Show every iteration."""
    base_link: str | None = None
    """Where the chain starts, if not where the robot says."""
    tool_link: str | None = None
    """Where it ends, if not where the robot says."""
    json: Path | None = None
    """Also write the answer to this file; - writes it to standard output, in place of the table."""
    quiet: bool = False
    """Print nothing but errors; the exit code is the answer."""

    def run(self) -> int:
        """Do it."""
        from ik_sim.robots import load_robot
        from ik_sim.solvers import all_solutions, load_solver
        from ik_sim.target import Tolerance

        robot = load_robot(self.robot, base_link=self.base_link, tool_link=self.tool_link)
        chain = robot.chain
        target = self._target(chain)
        q_seed = chain.check_q(robot.q_home if self.seed_q is None else self.seed_q, "--seed-q")
        solver = load_solver(self.solver, **self._settings())
        trace, listed = None, None
        if self.all or self.arm_angle_deg is not None:
            if self.trace:
                raise InvalidArgumentError("--trace", "shows one solve; it can't be had together with --all")
            angle: Any = "nearest" if self.arm_angle_deg is None else _radians(self.arm_angle_deg)
            if self.arm_angle_deg is not None and chain.family != "srs":
                raise InvalidArgumentError(
                    "--arm-angle-deg", f"is for seven-joint arms, not for a {chain.family} chain"
                )
            stop = getattr(solver, "stop", Tolerance())
            listed = all_solutions(chain, target, q_seed, arm_angle=angle, tolerance=stop)
            solution = listed[0] if listed else None
        elif self.trace:
            if not hasattr(solver, "trace"):
                raise InvalidArgumentError("--trace", f"{self.solver} keeps no record of its iterations")
            trace = solver.trace(chain, target, q_seed)
            solution = trace.solution
        else:
            solution = solver.solve(chain, target, q_seed)
        answer = _answer(robot, target, solver, q_seed, solution, listed, trace)
        if self.json is not None:
            from ik_sim.files import write_json

            write_json(self.json, answer)
        if not self.quiet and str(self.json) != "-":
            print(_table(robot, target, solver, q_seed, solution, listed, trace))
        return PASS if answer["converged"] else NOT_CONVERGED

    def _target(self, chain: Chain) -> Target:
        import numpy as np

        from ik_sim.target import Target

        wholes = {"--matrix": self.matrix, "--point": self.point, "--q": self.q, "--xyz": self.xyz}
        given = [name for name, value in wholes.items() if value is not None]
        turns = {"--rpy": self.rpy, "--rpy-deg": self.rpy_deg, "--quat-xyzw": self.quat_xyzw, "--axis": self.axis}
        turned = [name for name, value in turns.items() if value is not None]
        if len(given) != 1:
            raise InvalidArgumentError(
                "target", f"give one of {', '.join(wholes)}, not {' and '.join(given) or 'none of them'}"
            )
        if given != ["--xyz"]:
            if turned:
                raise InvalidArgumentError(turned[0], f"goes with --xyz, not with {given[0]}")
            if self.point is not None:
                return Target.point(self.point)
            if self.q is not None:
                return Target(chain.fk(chain.check_q(self.q, "--q")))
            assert self.matrix is not None
            if len(self.matrix) not in (12, 16):
                raise InvalidArgumentError("--matrix", f"takes 16 or 12 numbers, not {len(self.matrix)}")
            bottom = () if len(self.matrix) == 16 else (0.0, 0.0, 0.0, 1.0)
            return Target.pose(np.reshape([*self.matrix, *bottom], (4, 4)))
        if len(turned) != 1:
            what = " and ".join(turned) or "none of them; for a point in any orientation use --point"
            raise InvalidArgumentError("--xyz", f"needs one of {', '.join(turns)}, not {what}")
        if self.axis is not None:
            return Target.axis(self.xyz, self.axis)
        if self.quat_xyzw is not None:
            return Target.pose(xyz=self.xyz, quat_xyzw=self.quat_xyzw)
        return Target.pose(xyz=self.xyz, rpy=self.rpy if self.rpy_deg is None else np.radians(self.rpy_deg))

    def _settings(self) -> dict[str, Any]:
        from ik_sim.tasks import parse_override

        settings = dict(parse_override(text) for text in self.set)
        for key, value in (("position", self.position_tolerance), ("rotation", self.rotation_tolerance)):
            if value is not None:
                settings[key] = value
        return settings


def _radians(angle_deg: float) -> float:
    import math

    if not math.isfinite(angle_deg):
        raise InvalidArgumentError("--arm-angle-deg", f"must be finite, not {angle_deg}")
    return math.radians(angle_deg)


# --- for people ---


def _table(
    robot: Robot,
    target: Target,
    solver: Any,
    q_seed: Any,
    solution: Solution | None,
    listed: SolutionSet | None,
    trace: Trace | None,
) -> str:
    chain = robot.chain
    lines = [
        f"{robot.name}: {chain.base_link} to {chain.tool_link}, {chain.n} joints, family {chain.family}",
        f"target: {_target_words(target)}",
        f"solver: {solver}",
        "",
    ]
    if listed is not None:
        count = f"{len(listed)} solution{'' if len(listed) == 1 else 's'} inside the limits"
        lines += [count if listed else f"{listed.status}: {listed.reason}", ""]
        if len(listed) > 1:
            lines += [*_list(chain, q_seed, listed), "", "The nearest:", ""]
    if trace is not None:
        lines += [*_iterations(trace), ""]
    if solution is None:
        return "\n".join(lines).rstrip()
    if listed is None:
        lines += [f"{solution.status}: {solution.reason}", ""]
    lines += _joints(chain, solution)
    lines += ["", f"position error  {solution.position_error:.3g} m"]
    if target.kind_name != "point":
        lines.append(f"rotation error  {solution.rotation_error:.3g} rad  ({_deg(solution.rotation_error):.3g} deg)")
    work = f"{solution.iterations} iterations, {solution.restarts} restarts"
    lines.append(f"work            {work}" + (f", {solution.evaluations} evaluations" if solution.evaluations else ""))
    return "\n".join(lines)


def _deg(angle: Any) -> Any:
    import numpy as np

    return np.degrees(angle)


def _target_words(target: Target) -> str:
    from ik_sim.se3 import matrix_to_rpy

    place = " ".join(f"{x:.6g}" for x in target.T[:3, 3])
    if target.kind_name == "point":
        return f"point {place} m"
    if target.kind_name == "axis":
        return f"point {place} m, tool axis along {' '.join(f'{x:.4f}' for x in target.T[:3, 2])}"
    turn = " ".join(f"{x:.4f}" for x in _deg(matrix_to_rpy(target.T[:3, :3])))
    return f"pose {place} m, roll pitch yaw {turn} deg"


def _kinds(chain: Chain) -> list[str]:
    return [j.kind for j in chain.joints if j.name in chain.joint_names]


def _joints(chain: Chain, solution: Solution) -> list[str]:
    rows = [["joint", "deg", "rad", "limits", ""]]
    for name, kind, x, low, high in zip(
        chain.joint_names, _kinds(chain), solution.q, chain.lower, chain.upper, strict=True
    ):
        turns = kind != "prismatic"
        limit = [_bound(v, turns) for v in (low, high)]
        unit = "deg" if turns else "m"
        room = "no limits" if limit == ["-inf", "inf"] else f"{limit[0]} to {limit[1]} {unit}"
        note = "held" if low == high else "at its limit" if min(x - low, high - x) < 1e-9 else ""
        rows.append([name, f"{_deg(x):.4f}" if turns else "", f"{x:.6f}" if turns else f"{x:.6f} m", room, note])
    return _columns(rows, "<>><<")


def _bound(value: float, turns: bool) -> str:
    return f"{_deg(value) if turns else value:.6g}"


def _list(chain: Chain, q_seed: Any, listed: SolutionSet) -> list[str]:
    import numpy as np

    turns = [kind != "prismatic" for kind in _kinds(chain)]
    rows = [
        ["", *(name if t else f"{name} [m]" for name, t in zip(chain.joint_names, turns, strict=True)), "from seed", ""]
    ]
    for i, s in enumerate(listed[:SHOWN]):
        values = [f"{_deg(x):.3f}" if t else f"{x:.5f}" for x, t in zip(s.q, turns, strict=True)]
        rows.append([str(i + 1), *values, f"{np.linalg.norm(s.q - q_seed):.4f}", "singular" if s.singular else ""])
    lines = _columns(rows, ">" * (chain.n + 2) + "<")
    more = len(listed) - SHOWN
    return [*lines, *([f"… and {more} more; --json FILE writes all"] if more > 0 else []), "joints in degrees"]


def _iterations(trace: Trace) -> list[str]:
    rows = [["iteration", "phase", "position error [m]", "rotation error [rad]", "largest step"]]
    count = len(trace.phase)
    head = count if count <= SHOWN else SHOWN // 2
    for i in [*range(head), *range(max(head, count - SHOWN // 2), count)]:
        if i == head and count > SHOWN:
            rows.append(["…", "", "", "", ""])
        numbers = (trace.position_error[i], trace.rotation_error[i], trace.step[i])
        rows.append([str(i), f"{trace.phase[i]:.0f}", *(f"{x:.3e}" for x in numbers)])
    return _columns(rows, ">>>>>") if count else ["no iterations: solved in closed form"]


def _columns(rows: list[list[str]], sides: str) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(f"{c:{s}{w}}" for c, s, w in zip(row, sides, widths, strict=True)).rstrip() for row in rows]


# --- for machines ---


def _answer(
    robot: Robot,
    target: Target,
    solver: Any,
    q_seed: Any,
    solution: Solution | None,
    listed: SolutionSet | None,
    trace: Trace | None,
) -> dict[str, Any]:
    chain = robot.chain
    answer: dict[str, Any] = {
        "robot": robot.name,
        "base_link": chain.base_link,
        "tool_link": chain.tool_link,
        "family": chain.family,
        "joints": [
            {"name": name, "kind": kind, "lower": float(low), "upper": float(high)}
            for name, kind, low, high in zip(chain.joint_names, _kinds(chain), chain.lower, chain.upper, strict=True)
        ],
        "target": {"kind": target.kind_name, "T_base_tool": target.T.tolist()},
        "solver": str(solver),
        "q_seed": q_seed.tolist(),
        "converged": solution is not None and solution.converged,
    }
    if solution is not None:
        answer |= {**_numbers(solution), "T_base_tool": chain.fk(solution.q).tolist()}
    elif listed is not None:
        answer |= {"status": str(listed.status), "reason": listed.reason}
    if listed is not None:
        answer["solutions"] = [_numbers(s) for s in listed]
    if trace is not None:
        answer["trace"] = {
            name: getattr(trace, name).tolist() for name in ("phase", "position_error", "rotation_error", "step", "q")
        }
    return answer


def _numbers(solution: Solution) -> dict[str, Any]:
    return {
        "status": str(solution.status),
        "reason": solution.reason,
        "q": solution.q.tolist(),
        "position_error": solution.position_error,
        "rotation_error": solution.rotation_error,
        "iterations": solution.iterations,
        "evaluations": solution.evaluations,
        "restarts": solution.restarts,
        "seed_moved": solution.seed_moved,
        "singular": solution.singular,
    }
