"""The log of compiles: what was compiled or found on disk, why, and how long each stage took.

Imported only when there is something to log, since it brings ``logging`` in.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tack.runtime import settings
from tack.runtime.disk import config
from tack.runtime.reasons import describe_key, describe_slot, nearest, sentence
from tack.runtime.variants import LONG_COMPILE, slot_of

if TYPE_CHECKING:
    from tack.lang.kernel import Kernel
    from tack.runtime.backend import Backend
    from tack.runtime.facts import TemplateFacts
    from tack.runtime.variants import Variant

__all__ = ["failed", "optimized", "report", "template_read"]


def report(
    backend: Backend,
    kernel: Kernel,
    facts: TemplateFacts,
    variant: Variant,
    times: Mapping[str, float],
    logs: bool,
) -> None:
    """Logs a variant before it is put into its slot, and warns if compiling it took long."""
    if logs:
        done = "read from the disk cache" if variant.from_disk else "compiled"
        if not backend.is_final(variant.payload):
            done = "compiled without optimization"
        logging.getLogger(settings.LOGGER).info(
            "kernel '%s': %s for %s in %s ms (%s)%s",
            *(kernel.__name__, done, backend.label, _ms(variant.seconds)),
            *(_cause(backend, kernel, facts, variant), _stages(variant, times)),
        )
    if not variant.from_disk:
        _warn_if_long(backend, kernel, variant.seconds, logs)


def optimized(backend: Backend, kernel: Kernel, seconds: float) -> None:
    """Logs that optimized code took the place of a variant's first, and warns if that took long."""
    logs = settings.logs()
    if logs:
        logging.getLogger(settings.LOGGER).info(
            "kernel '%s': optimized for %s in %s ms", kernel.__name__, backend.label, _ms(seconds)
        )
    _warn_if_long(backend, kernel, seconds, logs)


def _warn_if_long(backend: Backend, kernel: Kernel, seconds: float, logs: bool) -> None:
    if seconds > LONG_COMPILE and (logs or not settings.silent()):
        logging.getLogger(settings.LOGGER).warning(
            "kernel '%s' took %.1f s to compile for %s; %s",
            *(kernel.__name__, seconds, backend.label, _cache()),
        )


def _cause(backend: Backend, kernel: Kernel, facts: TemplateFacts, variant: Variant) -> str:
    before = [description for _, _, description in describe_slot(kernel, slot_of(backend, kernel))]
    return sentence(nearest(describe_key(kernel, facts, variant.key), before))


def _stages(variant: Variant, times: Mapping[str, float]) -> str:
    """The times of the stages, and of the rest: imports, and LLVM's start in a new process."""
    if variant.from_disk:
        return ""
    rest = variant.seconds - sum(times.values())
    shown = [f"{name} {_ms(seconds)}" for name, seconds in {**times, "other": rest}.items() if seconds > 1e-5]
    return ": " + ", ".join(shown)


def _cache() -> str:
    cache = config.current()
    if cache.mode == "off":
        return "the kernel cache is off, so every process compiles it again"
    return f"the kernel cache is {cache.directory} (TACK_CACHE={cache.mode})"


def failed(backend: Backend, kernel: Kernel, error: Exception) -> None:
    """Logs that a kernel did not compile; the error, which the call raises, says it in full."""
    logging.getLogger(settings.LOGGER).info(
        "kernel '%s': not compiled for %s: %s: %s",
        *(kernel.__name__, backend.label, type(error).__name__, (str(error).splitlines() or [""])[0]),
    )


def template_read(kernel: Kernel, seconds: float) -> None:
    """Logs a lowered kernel that was found in the disk cache."""
    logging.getLogger(settings.LOGGER).info(
        "kernel '%s': lowered form read from the disk cache in %s ms", kernel.__name__, _ms(seconds)
    )


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.2f}" if seconds < 0.01 else f"{1e3 * seconds:.1f}"
