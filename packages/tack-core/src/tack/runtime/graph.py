"""`tack.capture`: launches, fills and copies recorded once, and run again without Python in between."""

from __future__ import annotations

from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, final

from tack.record import Record
from tack.runtime import native

if TYPE_CHECKING:
    import numpy as np

    from tack.lang.kernel import Kernel
    from tack.runtime.array import Array
    from tack.runtime.backend import Backend

__all__ = ["Call", "Graph", "Step", "recording"]


class Step(Record):
    """One thing that a graph runs, as its backend made it.

    ``work`` is the backend's; ``arrays`` are what it uses, and are kept alive.
    """

    work: Any
    arrays: tuple[Array, ...]


# The graph that is recording in this thread or task.
_recording: Final[ContextVar[Graph | None]] = ContextVar("tack_recording", default=None)


def recording() -> Graph | None:
    """The graph whose ``with`` block this thread or task is in."""
    return _recording.get()


class _Steps:
    """What a graph runs. Calls refer to this and not to the graph, which goes as soon as nobody has it."""

    __slots__ = ("backend", "recorded", "run")

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.recorded: list[Step] = []
        self.run: Any = None  # what runs them as they are; None: they have changed

    def add(self, step: Step) -> None:
        self.recorded.append(step)
        self.run = None

    def replace(self, position: int, step: Step) -> None:
        self.recorded[position] = step
        self.run = None

    def resolve(self, kernel: Kernel, args: tuple[Any, ...]) -> Step:
        from tack.runtime.launch import backend_of

        if backend_of(kernel, args) is not self.backend:
            raise ValueError(
                f"kernel '{kernel.__name__}' would run on another device than {self.backend.label}, "
                "which is being captured"
            )
        return self.backend.launch_step(kernel, args)


@final
class Call:
    """A launch in a graph. `update` changes its arguments for the next runs."""

    __slots__ = ("_args", "_position", "_steps", "kernel")

    def __init__(self, steps: _Steps, position: int, kernel: Kernel, args: tuple[Any, ...]) -> None:
        self._steps = steps
        self._position = position
        self._args = args
        self.kernel = kernel

    def update(self, **arguments: Any) -> None:
        """Gives parameters other values: numbers, or arrays, also of other shapes and dtypes.

        The call is resolved again, and compiled if its kernel was not compiled for such arguments; the next
        `Graph.launch` instantiates the graph again.

        Raises:
            TypeError: there is no such parameter.
            TypeError, ValueError: as the call would; the graph stays as it was.
        """
        unknown = [name for name in arguments if name not in self.kernel.params]
        if unknown:
            known = ", ".join(self.kernel.params)
            raise TypeError(
                f"kernel '{self.kernel.__name__}' has no parameter '{unknown[0]}'; it has: {known}"
            )
        args = tuple(
            arguments.get(name, arg) for name, arg in zip(self.kernel.params, self._args, strict=True)
        )
        self._steps.replace(self._position, self._steps.resolve(self.kernel, args))
        self._args = args

    def __repr__(self) -> str:
        return f"<call {self._position} of '{self.kernel.__name__}' in a graph>"


@final
class Graph:
    """Recorded launches, fills and copies of one device, made by ``tack.capture``.

    Inside its ``with`` block, kernels, ``fill`` and copies between arrays of the device are recorded and
    not run. Everything else acts at once, such as making arrays and reading them. `launch` then runs what
    was recorded, in its order, as often as it is called.

    Attributes:
        calls: the launches, whose arguments can be changed.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._steps = _Steps(backend)
        self._token: Token[Graph | None] | None = None
        self.calls: list[Call] = []

    def __enter__(self) -> Graph:
        from tack.runtime import debug  # which imports arrays, and they this module

        if _recording.get() is not None:
            raise RuntimeError("a graph is being captured here already")
        if debug.enabled():
            raise RuntimeError("debug mode looks at each launch when it is done; switch it off for a capture")
        self._token = _recording.set(self)
        native.pause()  # its calls would run
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        native.resume()
        assert self._token is not None
        _recording.reset(self._token)

    def __len__(self) -> int:
        """The number of launches, fills and copies."""
        return len(self._steps.recorded)

    def __repr__(self) -> str:
        return f"<tack.capture on {self._backend.label}: {len(self)} steps>"

    def launch(self) -> None:
        """Runs what was recorded; on devices that queue launches, queues it.

        Raises:
            RuntimeError: it is still being recorded, or the device refuses it.
        """
        if _recording.get() is self:
            raise RuntimeError("the graph is still being captured; launch it after its with block")
        steps = self._steps
        if steps.run is None:
            steps.run = self._backend.graph(steps.recorded)
        steps.run()

    # Recording.

    def record_launch(self, kernel: Kernel, args: tuple[Any, ...]) -> None:
        step = self._steps.resolve(kernel, args)
        self.calls.append(Call(self._steps, len(self), kernel, args))
        self._steps.add(step)

    def record_fill(self, array: Array, element: np.ndarray[Any, Any]) -> None:
        self._check(array)
        self._steps.add(Step(self._backend.fill_step(array, element), (array,)))

    def record_copy(self, target: Array, source: Array) -> None:
        """Of as many bytes as the target has."""
        self._check(target, source)
        self._steps.add(Step(self._backend.copy_step(target, source), (target, source)))

    def _check(self, *arrays: Array) -> None:
        for array in arrays:
            if array._backend.memory_domain != self._backend.memory_domain:
                raise ValueError(
                    f"the array is on {array._backend.label}, and {self._backend.label} is being captured"
                )
