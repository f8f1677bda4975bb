"""The environment variables that Tack reads, and what a bad value of one says.

A variable is read where its value is needed and checked each time, so a bad value raises at the
first use, and again at the next.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final

__all__ = [
    "LOGGER",
    "bad_value",
    "choice",
    "enable_logging",
    "flag",
    "log_compiles",
    "logs",
    "silent",
    "verify",
]

LOGGER: Final = "tack"

_ON: Final = ("1", "true", "yes", "on")
_OFF: Final = ("0", "false", "no", "off", "")


def flag(name: str, default: bool = False) -> bool:
    """Whether the environment variable ``name`` is on: 1, true, yes or on, in any case.

    Raises:
        ValueError: its value is none of these and not 0, false, no, off or empty either.
    """
    text = os.environ.get(name)
    if text is None:
        return default
    word = text.strip().lower()
    if word not in _ON and word not in _OFF:
        raise bad_value(name, text, (*_ON, *_OFF))
    return word in _ON


def choice(name: str, accepted: Sequence[str], default: str) -> str:
    """The value of the environment variable ``name``, which must be one of ``accepted``.

    Unset and empty give ``default``.

    Raises:
        ValueError: it is anything else.
    """
    text = os.environ.get(name, "")
    word = text.strip().lower()
    if not word:
        return default
    if word not in accepted:
        raise bad_value(name, text, accepted)
    return word


def bad_value(name: str, value: str, accepted: Sequence[str]) -> ValueError:
    """The error for an environment variable with a value that it does not take."""
    words = ", ".join(word or "empty" for word in accepted)
    return ValueError(f"environment variable {name}={value!r} is not accepted; use one of: {words}")


def verify() -> bool:
    """``TACK_VERIFY``: whether to verify the IR around every pass."""
    return flag("TACK_VERIFY")


def log_compiles() -> bool:
    """``TACK_LOG=compile``: whether to log each compile; turns the log on if so."""
    enabled = choice("TACK_LOG", ("compile", "off"), "off") == "compile"
    if enabled:
        enable_logging()
    return enabled


_complained: set[str] = set()


def _log_setting() -> str:
    return os.environ.get("TACK_LOG", "").strip()


def silent() -> bool:
    """``TACK_LOG=off``: whether not even long compiles are to be logged."""
    return bool(_log_setting()) and not logs()


def logs() -> bool:
    """Whether compiles are logged: ``TACK_LOG=compile``, or a program that asks the logger for INFO.

    It imports no ``logging`` to find that out. ``TACK_LOG=off`` has the last word.

    Raises:
        ValueError: ``TACK_LOG`` has a bad value. Once: from then on it counts as off, since a program
            that goes on after that does not depend on the log.
    """
    text = _log_setting()
    if text and text not in _complained:
        try:
            return log_compiles()
        except ValueError:
            _complained.add(text)
            raise
    logging = None if text else sys.modules.get("logging")
    return logging is not None and bool(logging.getLogger(LOGGER).isEnabledFor(logging.INFO))


def enable_logging() -> None:
    """Let the "tack" logger show its messages: on stderr, unless the program set logging up."""
    import logging  # here, since it takes long to import

    logger = logging.getLogger(LOGGER)
    if not logger.isEnabledFor(logging.INFO):
        logger.setLevel(logging.INFO)
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        logger.addHandler(handler)
