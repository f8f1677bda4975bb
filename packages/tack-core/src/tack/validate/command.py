"""``python -m tack validate``: starts the processes that check the devices, and reports."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from tack.validate.checks import load
from tack.validate.report import heading, line, summary, unavailable

__all__ = ["CHILD", "validate"]

CHILD: Final = (sys.executable, "-m", "tack.validate.child")
_LIMIT: Final = 300.0  # seconds of a check
_IGNORED: Final = ("TACK_DEBUG", "TACK_DEVICE", "TACK_CACHE_SIZE")  # checks set what they need
_WORDS: Final = 300  # characters of what a process said before it crashed

Report = dict[str, Any]


def validate(
    device: str | None = None,
    *,
    quick: bool = False,
    only: Sequence[str] = (),
    say: Callable[[str], object] = print,
    child: Sequence[str] = CHILD,
    limit: float = _LIMIT,
) -> Report:
    """Checks ``device``, or each that there is; what it found, as JSON values.

    Args:
        device: as ``tack.device`` takes it.
        quick: takes smaller problems.
        only: the names of the checks to run; without them, all.
        say: is given each line for people as soon as it is known.
        child: the command that runs `tack.validate.child`.
        limit: seconds after which a check is given up.

    Raises:
        ValueError: there is no such check.
    """
    from tack.info import versions

    unknown = [name for name in only if name not in load()]
    if unknown:
        raise ValueError(f"there is no check {unknown[0]!r}; there are: {', '.join(load())}")
    started = perf_counter()
    report: Report = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "quick": quick,
        "versions": versions(),
        "devices": [],
    }
    for name, version in report["versions"].items():
        say(f"{name:<10} {version}")
    with tempfile.TemporaryDirectory() as cache:
        children = _Children(child, cache, limit)
        found = children.devices()
        if device is not None:
            found = [one for one in found if one["spec"] == device] or [{"spec": device, "available": True}]
        report["devices"] = [
            _validated(one["spec"], quick, only, say, children) for one in found if one["available"]
        ]
        missing = [one for one in found if not one["available"]]
    report["devices"] += missing
    if missing:
        say("\n" + "\n".join(map(unavailable, missing)))
    checked = [one for one in report["devices"] if one["available"]]
    bad = [c for one in checked for c in one["checks"] if c["status"] in ("failed", "crashed")]
    report["passed"] = bool(checked) and not bad and all("error" not in one for one in checked)
    report["seconds"] = round(perf_counter() - started, 2)
    say(summary(report))
    return report


def _validated(
    spec: str, quick: bool, only: Sequence[str], say: Callable[[str], object], children: _Children
) -> Report:
    """A device's facts and the outcome of each check."""
    result: Report = {"spec": spec, "available": True, "checks": []}
    for names in _processes(only):
        while names:
            done = 0
            for fact in children.facts(spec, names, quick):
                if "device" in fact:
                    if "label" not in result:
                        result |= fact["device"]
                        say(heading(result))
                elif "end" in fact:
                    done += 1
                    outcome = {"name": fact.pop("end"), **fact}
                    result["checks"].append(outcome)
                    say(line(outcome))
                else:
                    result["error"] = fact["error"]
            if "error" in result:
                say(f"\n{spec}: {result['error']}")
                return result
            names = names[done:]
    return result


def _processes(only: Sequence[str]) -> Iterator[list[str]]:
    """The names of the checks that run in one process, for each."""
    checks = [check for check in load().values() if check.name in only or not only]
    yield [check.name for check in checks if not check.fresh]
    for check in checks:
        if check.fresh:
            yield [check.name]


class _Children:
    """Starts processes."""

    def __init__(self, command: Sequence[str], cache: str, limit: float) -> None:
        self.command = command
        self.limit = limit
        # Kernels are kept where those that the user has are not touched.
        kept = {name: value for name, value in os.environ.items() if name not in _IGNORED}
        self.environment = {**kept, "TACK_CACHE": "write", "TACK_CACHE_DIR": str(Path(cache) / "kernels")}

    def devices(self) -> list[Report]:
        """Each device, whether it starts, and if not why."""
        return [fact for fact in self._read([], self.limit)[0] if "spec" in fact]

    def facts(self, spec: str, names: Sequence[str], quick: bool) -> Iterator[Report]:
        """What a process tells that runs these checks, at once; the last may have ended the process."""
        begun: str | None = None
        started = told = perf_counter()
        options = ["--device", spec, *(["--quick"] if quick else []), *names]
        with self._started(options) as (facts, finish):
            while True:
                try:
                    fact = facts.get(timeout=max(0.0, told + self.limit - perf_counter()))
                except queue.Empty:
                    how = f"gave no answer in {self.limit:g} s"
                    finish(kill=True)
                    break
                if fact is None:
                    how = finish(kill=False)
                    break
                told = perf_counter()
                begun = fact.get("begin")
                if begun is None:
                    yield fact
                else:
                    started = told
        if begun is not None:
            seconds = round(perf_counter() - started, 4)
            yield {"end": begun, "status": "crashed", "detail": how, "seconds": seconds}
        elif how:
            yield {"error": how}

    def _read(self, options: Sequence[str], limit: float) -> tuple[list[Report], str]:
        found: list[Report] = []
        with self._started(options) as (facts, finish):
            while (fact := facts.get(timeout=limit)) is not None:
                found.append(fact)
            return found, finish(kill=False)

    @contextlib.contextmanager
    def _started(
        self, options: Sequence[str]
    ) -> Iterator[tuple[queue.Queue[Report | None], Callable[..., str]]]:
        """A process: the facts that it tells, None after the last, and what ends it and says how it ended."""
        with (
            tempfile.TemporaryFile() as errors,
            subprocess.Popen(
                [*self.command, *options], stdout=subprocess.PIPE, stderr=errors, env=self.environment
            ) as process,
        ):
            facts: queue.Queue[Report | None] = queue.Queue()

            def read() -> None:
                assert process.stdout is not None
                for text in process.stdout:
                    if text.startswith(b'{"'):  # others may write there too
                        with contextlib.suppress(ValueError):
                            facts.put(json.loads(text))
                facts.put(None)

            reader = threading.Thread(target=read, daemon=True)
            reader.start()

            def finish(*, kill: bool) -> str:
                if kill:
                    process.kill()
                status = process.wait()
                if not status:
                    return ""
                errors.seek(0)
                words = errors.read().decode(errors="replace").strip()[-_WORDS:]
                return f"the process ended with {_named(status)}" + (f": {words}" if words else "")

            try:
                yield facts, finish
            finally:
                if process.poll() is None:
                    process.kill()
                reader.join()


def _named(status: int) -> str:
    if status < 0:
        with contextlib.suppress(ValueError):
            return signal.Signals(-status).name
    return f"exit status {status}"
