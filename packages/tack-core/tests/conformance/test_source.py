"""language.md section 1: where source comes from, decorators, parameters, pickling."""

from __future__ import annotations

import doctest
import functools
import importlib.util
import linecache
import multiprocessing
import os
import pickle
import subprocess
import sys
import textwrap
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tack

from .helpers import build, execute, launch

SYNTAX = tack.UnsupportedSyntaxError


@tack.kernel
def scale(x, factor=2.0, offset=1):
    for i in range(x.shape[0]):
        x[i] = x[i] * factor + offset


def import_file(path: Path) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def python(*args: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs this Python with Tack importable."""
    source = str(Path(tack.__file__).parents[1])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])}
    return subprocess.run(
        [sys.executable, *args], env=env, capture_output=True, text=True, timeout=120, check=False, **options
    )


SIMPLE = """
import numpy as np, tack

@tack.kernel
def double(x):
    for i in range(x.shape[0]):
        x[i] = x[i] * 2

x = np.arange(4.0)
double(x)
print(x.tolist())
"""
DOUBLED = "[0.0, 2.0, 4.0, 6.0]"


# --- arguments and defaults -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "kwargs", "expected"),
    [
        ((), {}, 7.0),
        ((3.0,), {}, 10.0),
        ((3.0, 5), {}, 14.0),
        ((), {"offset": 10}, 16.0),
        ((), {"factor": 0.5, "offset": 0}, 1.5),
        ((), {"offset": 2, "factor": 1.0}, 5.0),
        ((4.0,), {"offset": 0}, 12.0),
    ],
)
def test_keyword_arguments_and_defaults(
    args: tuple[Any, ...], kwargs: dict[str, Any], expected: float
) -> None:
    x = np.array([3.0])
    scale(x, *args, **kwargs)
    assert x[0] == expected
    y = np.array([3.0])
    scale(x=y, **dict(zip(("factor", "offset"), args, strict=False)), **kwargs)
    assert y[0] == expected


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((), {}),
        ((1, 2, 3), {}),
        ((1,), {"factor": 2}),
        ((), {"x": 1}),
        ((), {"wrong": 1}),
        ((1, 2, 3, 4), {}),
    ],
)
def test_wrong_arguments_are_a_type_error_that_names_the_kernel(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    x = np.array([3.0])
    full = (x, *args) if args != () or "wrong" in kwargs or "x" in kwargs else ()
    with pytest.raises(TypeError, match="scale"):
        scale(*full, **kwargs)
    assert x[0] == 3.0


def test_positional_only_and_keyword_only_parameters() -> None:
    kernel = build(
        "@tack.kernel\ndef kernel(x, /, a=1, *, b=10):\n    for i in range(1):\n        x[i] = a + b\n"
    )
    x = np.zeros(1)
    for args, kwargs, expected in (((), {}, 11), ((2,), {}, 12), ((), {"a": 3, "b": 4}, 7)):
        kernel(x, *args, **kwargs)
        assert x[0] == expected
    with pytest.raises(TypeError):
        kernel(x, 1, 2)
    with pytest.raises(TypeError):
        kernel(x=x)


@pytest.mark.parametrize("params", ["o, *args", "o, **kwargs"])
def test_star_parameters_are_rejected(params: str) -> None:
    # Their place is the parameter; whether at decoration or at the call is open.
    with pytest.raises(SYNTAX) as caught:
        build(f"@tack.kernel\ndef kernel({params}):\n    for i in range(1):\n        o[i] = 1\n")(np.zeros(1))
    assert caught.value.lineno == 2


# --- decorators and device functions ----------------------------------------------------------


def test_a_kernel_call_returns_none() -> None:
    assert scale(np.zeros(1)) is None


def test_func_of_a_lambda_or_non_function_is_a_type_error() -> None:
    def generator_free_class() -> None: ...

    for value in (lambda a: a, 3, "f", int, functools.partial(generator_free_class), type("C", (), {})):
        with pytest.raises(TypeError):
            tack.func(value)


def test_kernel_of_a_lambda_or_non_function_is_a_type_error() -> None:
    for value in (lambda a: a, 3, int):
        with pytest.raises(TypeError):
            tack.kernel(value)


def test_func_called_from_python_says_so() -> None:
    f = build("@tack.func\ndef f(a):\n    return a\n", "f")
    with pytest.raises(RuntimeError, match="f"):
        f(1)


def test_other_decorators_around_and_below() -> None:
    source = """
        def keep(function):
            return function

        def options(**_):
            return keep

        @keep
        @options(
            a=1,
            b=(2, 3),
        )
        @tack.kernel
        @keep
        def kernel(o):
            for i in range(1):
                o[i] = 5
    """
    o = np.zeros(1)
    launch(build(source), o)
    assert o[0] == 5


def test_wrapped_function_keeps_its_source() -> None:
    source = """
        import functools

        def logged(function):
            @functools.wraps(function)
            def wrapper(*args, **kwargs):
                return function(*args, **kwargs)
            return wrapper

        @logged
        @tack.kernel
        def kernel(o):
            for i in range(1):
                o[i] = 6
    """
    o = np.zeros(1)
    launch(build(source), o)
    assert o[0] == 6


def test_kernel_name_and_docstring_are_kept() -> None:
    kernel = build(
        '@tack.kernel\ndef kernel(o):\n    """Says what."""\n    for i in range(1):\n        o[i] = 1\n'
    )
    assert kernel.__name__ == "kernel"
    assert kernel.__doc__ == "Says what."


def test_factory_kernels_see_their_own_closure() -> None:
    source = """
        def factory(f, c):
            @tack.kernel
            def kernel(o):
                for i in range(1):
                    o[i] = f(i) + c
            return kernel

        def function(n):
            if n == 1:
                @tack.func
                def f(a):
                    return a + 1
            else:
                @tack.func
                def f(a):
                    return a + 2
            return f

        kernels = [factory(function(n), tack.constant(10 * n)) for n in (1, 2, 3)]
    """
    o = np.zeros(1)
    for kernel, expected in zip(build(source, "kernels"), (11, 22, 32), strict=True):
        launch(kernel, o)
        assert o[0] == expected


def test_deeply_indented_kernel_with_odd_layout() -> None:
    source = '''
        class Outer:
            class Inner:
                def make(self):
                    if True:
                        @tack.kernel
                        def kernel(
                            o,   # the output
                            k = (
                                3
                            ),
                        ):
                # a comment at a lower indent
                            """A docstring
                that comes back to the left."""
                            for i in range(
                o.shape[0]
                            ):
                                o[i] = (k +
                1)
                        return kernel

        kernel = Outer().Inner().make()
    '''
    o = np.zeros(3)
    launch(build(source), o)
    assert o.tolist() == [4, 4, 4]


def test_one_line_kernel_and_tabs() -> None:
    o = np.zeros(3)
    launch(build("@tack.kernel\ndef kernel(o):\n\tfor i in range(3):\n\t\tif i: o[i] = 1; o[0] = 2\n"), o)
    assert o.tolist() == [2, 1, 1]


def test_two_kernels_of_one_name_in_one_file() -> None:
    source = """
        @tack.kernel
        def kernel(o):
            for i in range(1):
                o[i] = 1
        first = kernel

        @tack.kernel
        def kernel(o):
            for i in range(1):
                o[i] = 2
    """
    space = execute(source)
    o = np.zeros(1)
    for name, expected in (("first", 1), ("kernel", 2), ("first", 1)):
        launch(space[name], o)
        assert o[0] == expected


def test_annotations_are_ignored_except_dtypes_and_the_return() -> None:
    source = """
        from __future__ import annotations
        @tack.kernel
        def kernel(o: "np.ndarray", n: int, q: Missing = 3, *, r: "also.missing" = 4) -> None:
            for i in range(n):
                o[i] = q + r
    """
    o = np.zeros(2)
    launch(build(source), o, 2)
    assert o.tolist() == [7, 7]


# --- where source comes from ------------------------------------------------------------------


def test_kernel_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "module_é.py"
    path.write_text(
        "# -*- coding: utf-8 -*-\n"
        + SIMPLE.replace("print", "found = ").replace("def double", "# é\ndef double"),
        "utf-8",
    )
    assert str(import_file(path).found) == DOUBLED


def test_file_edited_after_decoration(tmp_path: Path) -> None:
    """The text that was imported is compiled, not what the file says at the first call."""
    path = tmp_path / "edited.py"
    source = "import tack\n@tack.kernel\ndef kernel(o):\n    for i in range(1):\n        o[i] = 1\n"
    path.write_text(source)
    module = import_file(path)
    path.write_text("# two\n# more lines\n" + source.replace("= 1", "= 2"))
    linecache.checkcache(str(path))
    o = np.zeros(1)
    launch(module.kernel, o)
    assert o[0] == 1


def test_notebook_cell() -> None:
    """IPython registers a cell in linecache under a name that is no file."""
    o = np.zeros(1)
    for number in (1, 2):
        name = f"<ipython-input-{number}-0123abcd>"
        space = execute(
            f"@tack.kernel\ndef kernel(o):\n    for i in range(1):\n        o[i] = {number}\n", name
        )
        launch(space["kernel"], o)
        assert o[0] == number


def test_doctest() -> None:
    text = """
    >>> import numpy as np, tack
    >>> @tack.kernel
    ... def fill(x, v):
    ...     for i in range(x.shape[0]):
    ...         x[i] = v + i
    >>> x = np.zeros(3)
    >>> fill(x, 4)
    >>> x.tolist()
    [4.0, 5.0, 6.0]
    """
    test = doctest.DocTestParser().get_doctest(textwrap.dedent(text), {}, "kernel_doctest", None, 0)
    results = doctest.DocTestRunner(verbose=False).run(test)
    assert results.attempted == 5
    assert results.failed == 0


def test_exec_without_source_says_what_to_do() -> None:
    source = "import tack\n@tack.kernel\ndef nameless(o):\n    for i in range(1):\n        o[i] = 1\n"
    with pytest.raises(RuntimeError, match="nameless") as caught:
        exec(compile(source, "<nowhere-to-be-found>", "exec"), {"__name__": "nowhere"})
    assert "linecache" in str(caught.value)


def test_func_without_source_says_what_to_do() -> None:
    source = "import tack\n@tack.func\ndef nameless(a):\n    return a\n"
    with pytest.raises(RuntimeError, match="nameless"):
        exec(compile(source, "<nowhere-to-be-found>", "exec"), {"__name__": "nowhere"})


def test_command_line_source() -> None:
    result = python("-c", SIMPLE)
    if sys.version_info >= (3, 13):
        assert result.stdout.strip() == DOUBLED, result.stderr
    else:
        assert result.returncode == 1
        assert "RuntimeError" in result.stderr
        assert "'double'" in result.stderr
        assert "3.13" in result.stderr


def test_script_module_and_runpy(tmp_path: Path) -> None:
    (tmp_path / "prog.py").write_text(SIMPLE)
    results = [
        python("prog.py", cwd=tmp_path),
        python("-m", "prog", cwd=tmp_path),
        python("-c", "import runpy; runpy.run_path('prog.py')", cwd=tmp_path),
        python(
            "-c",
            "import os; os.makedirs('d'); os.chdir('d'); import sys; sys.path.insert(0, '..'); import prog",
            cwd=tmp_path,
        ),
    ]
    assert [r.stdout.strip() for r in results] == [DOUBLED] * 4, [r.stderr for r in results]


def test_positions_are_absolute_for_a_relative_script(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(SIMPLE.replace("x[i] * 2", "undefined_name"))
    result = python("bad.py", cwd=tmp_path)
    assert result.returncode == 1
    assert (
        f"{(tmp_path / 'bad.py').resolve()}:7:16" in result.stderr
        or f"{tmp_path / 'bad.py'}:7:16" in result.stderr
    )


def test_zipped_module(tmp_path: Path) -> None:
    import zipfile

    with zipfile.ZipFile(tmp_path / "library.zip", "w") as archive:
        archive.writestr("zipped.py", SIMPLE)
    result = python("-c", "import sys; sys.path.insert(0, 'library.zip'); import zipped", cwd=tmp_path)
    assert result.stdout.strip() == DOUBLED, result.stderr


def test_line_endings_byte_order_mark_and_encodings(tmp_path: Path) -> None:
    source = SIMPLE.replace("print(", "found = (").replace("def double(x):", "def double(x):  # größe é")
    texts = {
        "crlf": source.replace("\n", "\r\n").encode(),
        "mark": b"\xef\xbb\xbf" + source.encode(),
        "latin": ("# -*- coding: latin-1 -*-\n" + source).encode("latin-1"),
        "feed": source.replace("@tack", "\f\n@tack").encode(),
        "no_newline_at_the_end": source.rstrip("\n").encode(),
    }
    for name, data in texts.items():
        path = tmp_path / f"{name}.py"
        path.write_bytes(data)
        assert import_file(path).found == [0.0, 2.0, 4.0, 6.0], name


def test_semicolons_continuations_and_comments() -> None:
    source = r"""
if True:
    @tack.kernel  # a comment
    def kernel(o):
# a comment at the left edge
        for i in \
                range(2):  # the loop
            a = 1; b = 2 ; \
            c = (a +  # inside
  b)

            # between
            if c: o[i] = c; o[i] += 1
"""
    o = np.zeros(2)
    launch(build(source), o)
    assert o.tolist() == [4, 4]


@pytest.mark.f64
def test_import_styles() -> None:
    source = """
        import tack as tk
        from math import sin as sine
        from tack import atomic_add, f64, func, kernel as jit, local_array, ndindex

        @func
        def f(a):
            return sine(a) * 2

        @jit
        def kernel(o):
            for i, j in ndindex(1, 2):
                a = local_array(2, tk.i32)
                a[j] = 3
                o[j] = a[j] + f64(f(0.0))
                atomic_add(o, 2, 1)
    """
    o = np.zeros(3, np.float32)
    launch(build(source), o)
    assert o.tolist() == [3, 3, 2]


def test_decorators_called_as_functions() -> None:
    source = """
        def body(o):
            for i in range(1):
                o[i] = 5

        def helper(a):
            return a + 1

        helper_func = tack.func(helper)
        first = tack.kernel(body)
        second = tack.kernel(fastmath=True)(body)

        class Namespace:
            @staticmethod
            @tack.kernel
            def inner(o):
                for i in range(1):
                    o[i] = helper_func(6)
        third = Namespace.inner
    """
    space = execute(source)
    for name, expected in (("first", 5), ("second", 5), ("third", 7)):
        o = np.zeros(1)
        launch(space[name], o)
        assert o[0] == expected
    assert space["helper"](1) == 2


def test_closure_cell_filled_after_decoration() -> None:
    source = """
        def factory():
            @tack.kernel
            def kernel(o):
                for i in range(1):
                    o[i] = later(i)

            @tack.func
            def later(a):
                return a + 9
            return kernel

        def unfinished():
            @tack.kernel
            def kernel(o):
                for i in range(1):
                    o[i] = never(i)
            if kernel is None:
                never = 1
            return kernel

        kernel, bad = factory(), unfinished()
    """
    space = execute(source)
    o = np.zeros(1)
    launch(space["kernel"], o)
    assert o[0] == 9
    with pytest.raises(NameError, match="never"):
        launch(space["bad"], o)


# --- decoration is cheap ----------------------------------------------------------------------


def test_decoration_does_not_parse(monkeypatch: pytest.MonkeyPatch) -> None:
    import ast

    source = "\n".join(
        f"@tack.kernel\ndef k{n}(o):\n    for i in range(1):\n        o[i] = {n}\n" for n in range(50)
    )
    parsed = []
    original = ast.parse
    monkeypatch.setattr(ast, "parse", lambda *a, **k: parsed.append(a) or original(*a, **k))
    space = execute(source)
    assert not parsed
    o = np.zeros(1)
    launch(space["k7"], o)
    assert o[0] == 7


def test_syntax_errors_appear_at_the_call_not_at_decoration() -> None:
    kernel = build("@tack.kernel\ndef kernel(o):\n    for i in range(1):\n        assert i\n")
    with pytest.raises(SYNTAX):
        launch(kernel, np.zeros(1))


# --- pickling ---------------------------------------------------------------------------------


def test_module_level_kernel_pickles_by_reference() -> None:
    assert pickle.loads(pickle.dumps(scale)) is scale
    import copy

    assert copy.deepcopy(scale) is scale
    assert copy.copy(scale) is scale


def _worker(kernel: Any, value: float) -> list[float]:
    x = np.full(3, value)
    kernel(x, 10.0)
    return list(x.tolist())


def test_kernel_in_a_spawned_process(tmp_path: Path) -> None:
    """The kernel travels as a pickled argument, as multiprocessing and Dask send it."""
    (tmp_path / "job.py").write_text(
        textwrap.dedent(
            """
            import multiprocessing, numpy as np, tack

            @tack.kernel
            def scale(x, factor, offset=1):
                for i in range(x.shape[0]):
                    x[i] = x[i] * factor + offset

            def work(kernel, value):
                x = np.full(3, value)
                kernel(x, 10.0)
                return x.tolist()

            if __name__ == "__main__":
                import job
                print(job.work(job.scale, 1.0))
                for method in ("spawn", "forkserver"):
                    with multiprocessing.get_context(method).Pool(1) as pool:
                        print(pool.apply(job.work, (job.scale, 2.0)))
            """
        )
    )
    result = python("job.py", cwd=tmp_path)
    assert result.stdout.split("\n")[:3] == [
        "[11.0, 11.0, 11.0]",
        "[21.0, 21.0, 21.0]",
        "[21.0, 21.0, 21.0]",
    ], result.stderr


def test_fork_after_a_launch() -> None:
    assert _worker(scale, 1.0) == [11.0] * 3
    with multiprocessing.get_context("fork").Pool(1) as pool:
        if tack.default_device().name != "cpu":  # drivers of GPUs do not work in a forked child
            with pytest.raises(RuntimeError, match=r"when this process was forked.*spawn"):
                pool.apply_async(_worker, (scale, 2.0)).get(timeout=60)
            return
        assert pool.apply_async(_worker, (scale, 2.0)).get(timeout=60) == [21.0] * 3
