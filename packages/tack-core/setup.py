"""Builds the native dispatcher, `tack._native`, which Tack does without where it cannot be built."""

import sysconfig
from pathlib import Path

from setuptools import Extension, setup

SOURCES = sorted(f"native/{path.name}" for path in (Path(__file__).parent / "native").glob("*.c"))


def native() -> Extension | None:
    """The extension against Python's stable ABI, which builds without the GIL do not have."""
    try:
        import numpy
    except ImportError:  # where NumPy's headers cannot be had
        return None
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return None
    return Extension(
        "tack._native",
        SOURCES,
        include_dirs=[numpy.get_include()],
        depends=["native/native.h"],
        extra_compile_args=["-O2", "-std=c11", "-fvisibility=hidden"],
        py_limited_api=True,
        optional=True,  # without a compiler or Python.h the rest is installed all the same
    )


found = native()
setup(
    ext_modules=[found] if found else [],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if found else {},
)
