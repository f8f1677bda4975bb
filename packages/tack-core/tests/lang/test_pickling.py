"""Kernels and device functions that travel to another process: by name, or with all that they read."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

import tack
from tack.lang import pickling
from tack.lang.builtins import BUILTINS, CONSTRUCTS

PICKLERS = pytest.mark.parametrize("pickler", [pickle, cloudpickle], ids=["pickle", "cloudpickle"])

# A script whose kernel reads one of everything.
SCRIPT = """
from __future__ import annotations
import sys
from importlib import import_module
import numpy as np
import tack
from tack import sqrt as root, ndindex
from tack import vec2 as pair

dump = import_module(sys.argv[1]).dumps
big = np.zeros(10_000_000)  # that a kernel has a variable of this name does not bring it
SCALE = tack.constant(3)
TABLE = tack.constant((1.0, 10.0))
LIMIT = tack.constant(7)
FACTOR = tack.constant(0.5, tack.f64)

@tack.func
def inner(v, extra=2):
    return v * SCALE + extra

@tack.func
def outer(v):
    return inner(v) + TABLE[1]

def make(cell):
    held = tack.constant(cell)
    @tack.kernel(fastmath=True)
    def closed(x):
        for i in range(x.shape[0]):
            x[i] = x[i] + held
    return closed

@tack.kernel
def used(x, shift: "pair", count: tack.i64 = 4, *, out):
    for i, j in ndindex(x.shape[0], 1):
        big = outer(x[i]) + root(16.0) + shift[1] + count * FACTOR
        if i < LIMIT:
            out[i] = big + np.pi

closed = make(40)
if __name__ == "__main__":
    with open("sent", "wb") as file:
        file.write(dump([used, closed, used, inner]))
"""
RECEIVE = """
import json, pickle
import numpy as np
used, closed, again, inner = pickle.loads(open("sent", "rb").read())
assert used is again
x = np.arange(4.0)
out = np.zeros(4)
used(x, (0.0, 0.25), out=out)
closed(x)
print(json.dumps([out.tolist(), x.tolist(), closed.fastmath, used.fastmath, inner.__wrapped__.__defaults__]))
assert pickle.loads(pickle.dumps(used)) is used
assert pickle.loads(open("sent", "rb").read())[0] is used
"""


def python(cwd: Path, *args: str) -> subprocess.CompletedProcess[str]:
    source = str(Path(tack.__file__).parents[1])
    environment = {"PYTHONPATH": source, "TACK_CACHE": "off", "PATH": ""}
    done = subprocess.run(
        [sys.executable, *args], cwd=cwd, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done


@PICKLERS
def test_functions_of_a_script_bring_all_that_they_read(pickler: Any, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    python(tmp_path, "script.py", pickler.__name__)
    assert (tmp_path / "sent").stat().st_size < 20_000
    (tmp_path / "script.py").unlink()  # as on another machine
    (tmp_path / "receive.py").write_text(RECEIVE)
    out, x, *rest = json.loads(python(tmp_path, "receive.py").stdout)
    want = [v * 3 + 2 + 10 + 4 + 0.25 + 4 * 0.5 + np.pi for v in range(4)]
    np.testing.assert_allclose(out, want, rtol=1e-14)
    assert x == [40.0, 41.0, 42.0, 43.0]
    assert rest == [True, False, [2]]


def make(cell: int) -> tack.Kernel:
    held = tack.constant(cell)

    @tack.kernel
    def added(x):
        for i in range(x.shape[0]):
            x[i] = x[i] + held + missing

    return added


@PICKLERS
def test_a_kernel_of_a_functions_scope(pickler: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = make(5)
    data = pickler.dumps(kernel)
    assert pickler.loads(data) is kernel
    assert copy.copy(kernel) is copy.deepcopy(kernel) is kernel
    monkeypatch.setattr(pickling, "_known", type(pickling._known)())  # as in another process
    twin = pickler.loads(data)
    assert twin is not kernel
    assert pickler.loads(data) is twin
    assert twin.__qualname__ == kernel.__qualname__
    with pytest.raises(NameError) as here:
        kernel(np.zeros(2))
    with pytest.raises(NameError) as there:  # the same place in the same source
        twin(np.zeros(2))
    assert str(there.value) == str(here.value)
    assert "held + missing" in str(there.value)


def test_kernels_of_a_module_travel_by_name() -> None:
    assert len(pickle.dumps(by_name)) < 150
    assert pickle.loads(pickle.dumps(by_name)) is by_name


@tack.kernel
def by_name(x):
    for i in range(x.shape[0]):
        x[i] = 0


@PICKLERS
def test_instances_of_a_device_class(pickler: Any, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(f"""
import {pickler.__name__} as p, sys, tack, numpy as np

@tack.device_class
class Line:
    power = 2
    def __init__(self, slope):
        self.slope = slope
    @tack.func
    def at(self, v):
        return v * self.slope + self.power

@tack.kernel
def draw(line, out):
    for i in range(out.shape[0]):
        out[i] = line.at(i)

if __name__ == "__main__":
    open("sent", "wb").write(p.dumps((draw, Line(3.0))))
""")
    python(tmp_path, "script.py")
    load = "import pickle, numpy as np\n"
    if pickler is pickle:  # which sends the class by name
        load += "from script import Line\n"
    load += "draw, line = pickle.load(open('sent', 'rb'))\n"
    (tmp_path / "receive.py").write_text(f"{load}out = np.zeros(3)\ndraw(line, out)\nprint(out)\n")
    assert python(tmp_path, "receive.py").stdout == "[2. 5. 8.]\n"


def test_words_of_the_language_arrive_as_themselves() -> None:
    for word in (*BUILTINS.values(), *CONSTRUCTS.values()):
        assert pickle.loads(pickle.dumps(word)) is word
        assert copy.deepcopy(word) is word


def test_only_the_functions_that_arrived_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickling, "_known", type(pickling._known)())
    kernels = [make(k) for k in range(pickling._KEPT + 10)]
    data = [pickle.dumps(kernel) for kernel in kernels]
    assert len(pickling._known) == pickling._KEPT
    assert pickle.loads(data[-1]) is kernels[-1]
    assert pickle.loads(data[0]) is not kernels[0]


def test_another_python_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    data = pickle.dumps(make(1))
    monkeypatch.setattr(pickling, "_version", lambda: "cpython-399")
    with pytest.raises(RuntimeError, match="Put it in a module"):
        pickle.loads(data)


def test_arriving_in_many_threads_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    @tack.kernel
    def plus(x):
        for i in range(x.shape[0]):
            x[i] = x[i] + 1

    data = pickle.dumps(plus)
    monkeypatch.setattr(pickling, "_known", type(pickling._known)())
    results = []

    def work() -> None:
        x = np.zeros(3)
        pickle.loads(data)(x)
        results.append(x.tolist())

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[1.0, 1.0, 1.0]] * 8
