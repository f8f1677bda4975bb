"""What people read of a validation."""

from __future__ import annotations

from typing import Any

__all__ = ["heading", "line", "summary", "unavailable"]

_NAME = 22


def heading(device: dict[str, Any]) -> str:
    """The title of a device's table."""
    about = [f"{name}: {value}" for name, value in device["about"].items()]
    rows = [f"\n{device['label']} ({device['spec']})", *(f"  {row}" for row in about)]
    return "\n".join([*rows, f"  {'check':<{_NAME}} {'result':<8} {'seconds':>8}"])


def line(outcome: dict[str, Any]) -> str:
    """The row of a check."""
    status = outcome["status"]
    word = status.upper() if status in ("failed", "crashed") else status
    detail = outcome["detail"].replace("\n", "\n" + " " * (_NAME + 24))
    return f"  {outcome['name']:<{_NAME}} {word:<8} {outcome['seconds']:8.2f}  {detail}".rstrip()


def unavailable(device: dict[str, Any]) -> str:
    """The line of a device that does not start."""
    fix = f"; to fix it: {device['help']}" if device.get("help") else ""
    return f"{device['spec']}: not checked, {device.get('reason')}{fix}"


def summary(report: dict[str, Any]) -> str:
    """The last line."""
    checks = [check for device in report["devices"] for check in device.get("checks", ())]
    counts = {word: sum(c["status"] == word for c in checks) for word in ("failed", "crashed", "lacking")}
    parts = [f"{len(checks) - sum(counts.values())} passed"]
    parts += [f"{count} {word}" for word, count in counts.items() if count]
    devices = ", ".join(d["spec"] for d in report["devices"] if d["available"]) or "no device"
    verdict = "as it should be" if report["passed"] else "NOT as it should be"
    return f"\n{devices}: {verdict}; {', '.join(parts)} in {report['seconds']:.1f} s"
