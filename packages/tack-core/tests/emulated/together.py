"""Tasks in threads whose requests of one kind are met together, as a compiler takes many texts at once."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

__all__ = ["current", "run"]

T = TypeVar("T")
Meet = Callable[[list[Any]], Sequence[Any]]

_current: contextvars.ContextVar[_Round | None] = contextvars.ContextVar("together", default=None)


def current() -> _Round | None:
    """What tasks of this thread ask, inside `run`."""
    return _current.get()


def run(tasks: Sequence[Callable[[], T]]) -> list[T]:
    """What each task returns. They run in threads, one for each, in this one's context."""
    own = _Round(len(tasks))
    token = _current.set(own)
    try:
        with ThreadPoolExecutor(max(len(tasks), 1)) as pool:
            contexts = [contextvars.copy_context() for _ in tasks]
            started = [
                pool.submit(context.run, own.work, task)
                for context, task in zip(contexts, tasks, strict=True)
            ]
            return [future.result() for future in started]
    finally:
        _current.reset(token)


class _Round:
    """Requests wait until every task waits or has ended; then the last to come meets them all."""

    def __init__(self, tasks: int) -> None:
        self._lock = threading.Lock()
        self._running = tasks
        self._waiting: dict[Meet, list[tuple[Any, Future[Any]]]] = {}

    def work(self, task: Callable[[], T]) -> T:
        try:
            return task()
        finally:
            self._stop(None)

    def ask(self, meet: Meet, item: Any) -> Any:
        """The answer to ``item``, which is raised if it is an exception. ``meet`` gives one for each item and
        gets those of all tasks that ask with one equal to it."""
        answer: Future[Any] = Future()
        self._stop((meet, item, answer))
        return answer.result()

    def _stop(self, request: tuple[Meet, Any, Future[Any]] | None) -> None:
        """A task ends, or waits."""
        with self._lock:
            self._running -= 1
            if request is not None:
                meet, item, answer = request
                self._waiting.setdefault(meet, []).append((item, answer))
            if self._running:
                return
            waiting, self._waiting = self._waiting, {}
            self._running = sum(map(len, waiting.values()))
        for meet, requests in waiting.items():
            try:
                answers = meet([item for item, _ in requests])
            except Exception as error:
                answers = [error] * len(requests)
            for (_, future), given in zip(requests, answers, strict=True):
                if isinstance(given, Exception):
                    future.set_exception(given)
                else:
                    future.set_result(given)
