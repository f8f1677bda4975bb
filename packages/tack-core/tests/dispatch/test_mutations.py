"""Each thing that the native dispatcher looks at matters: without it a call computes something else.

A mutant is the extension with one piece of its source replaced. The scenario that it names passes with
the extension as it is, and fails with the mutant.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest

import tack

NATIVE = Path(__file__).parents[2] / "native"
INCLUDES = ["-I", sysconfig.get_paths()["include"], "-isystem", np.get_include()]
FLAGS = ["-O1", "-std=c11", "-fPIC", "-w", *INCLUDES]

# The scenario, the file, what is replaced there, and by what.
MUTANTS = [
    ("dtype", "values.c", "(uint64_t)dtype << 8 | ", ""),
    ("dtype_of_tack_arrays", "values.c", "(uint64_t)dtype << 8 | ", ""),
    ("components", "values.c", " | (uint64_t)component << 32", ""),
    ("textures_are_no_arrays", "values.c", "tag ? W_TEXTURE : W_ARRAY", "W_ARRAY"),
    ("width_of_integers", "values.c", "narrow ? W_I32 : W_I64", "W_I32"),
    ("unsigned_integers", "values.c", "add_word(call, W_U64)", "add_word(call, W_I64)"),
    ("floats_and_integers", "values.c", "add_word(call, W_FLOAT)", "add_word(call, W_I32)"),
    ("contiguity", "values.c", "!(array->flags & NPY_ARRAY_C_CONTIGUOUS)", "false"),
    ("byte_order", "values.c", "descr->byteorder == '=' || descr->byteorder == '|'", "true"),
    ("memory_domain", "values.c", " || array->domain != call->domain", ""),
    (
        "extent_of_an_axis",
        "table.c",
        "add_word(call, has ? (uint64_t)value->dims[axis] : UINT64_MAX)",
        "true",
    ),
    ("size", "table.c", "add_word(call, (uint64_t)value->size)", "true"),
    ("number_of_axes", "values.c", "(uint64_t)ndim << 16 | ", ""),
    ("row_strides", "table.c", "fits = add_word(call, (uint64_t)value->dims[i]);", ";"),
    ("overlap", "kernel.c", "plans[disjoint(form, call)]", "plans[1]"),
    ("classes_and_layouts", "layouts.c", "!add_word(call, (uint64_t)layout->id)", "false"),
    ("class_constants", "layouts.c", "same = same_constant(item->value, value);", ";"),
    ("class_attributes_that_become_constants", "layouts.c", "same = !is_number(value);", ";"),
    ("bases", "layouts.c", "PyType_GetSlot(shot->cls, Py_tp_bases) != (void *)shot->bases", "false"),
    ("the_mark_of_device_classes", "layouts.c", "same = value == item->value;", ";"),
    (
        "constants_that_instances_shadow",
        "layouts.c",
        "same_constant(attribute->value, own) ? DONE : MISS",
        "DONE",
    ),
    ("names_of_attributes", "layouts.c", "same_name(attribute->key, key) ? ", "true ? "),
    ("new_attributes", "layouts.c", "dict && PyDict_Size(dict) != layout->nattributes", "false"),
    ("functions_among_attributes", "layouts.c", "attribute->role == FUNC && attribute->value == own", "true"),
    ("types_of_attributes", "values.c", "add_word(call, W_FLOAT)", "add_word(call, W_I32)"),
    ("shapes_of_attributes", "layouts.c", "add_word(call, (uint64_t)value->dims[k]) ? DONE : PYTHON", "DONE"),
    ("axes_of_attributes", "values.c", "(uint64_t)ndim << 16 | ", ""),
    ("classes_of_parts", "layouts.c", " || Py_TYPE(own) != attribute->part->cls", ""),
    ("read_only_arrays", "launch.c", "!call->values[plan->written[k]].writable", "false"),
    (
        "alignment_for_atomics",
        "launch.c",
        "for (int k = 0; k < plan->naligned; k++)",
        "for (int k = 0; k < 0; k++)",
    ),
    ("whole_workgroups", "launch.c", "plan->full_workgroups && packed->total % WORKGROUP", "false"),
    ("large_launches", "kernel.c", "packed->total >= (*plan)->large", "false"),
    ("range_of_pinned_integers", "launch.c", "!holds(", "false && !holds("),
    (
        "launch_bounds_past_64_bits",
        "launch.c",
        "return !__builtin_mul_overflow(a, b, out);",
        "*out = a * b; return true;",
    ),
    ("the_last_arrays", "memo.c", "array->serial != memo->serials[k]", "false"),
    ("default_device", "kernel.c", "self->tables[k]->backend == backend", "true"),
    ("debug_mode_of_the_environment", "kernel.c", "!value || value == state.debug_off", "true"),
    ("debug_mode", "kernel.c", "return state.debug;", "return false;"),
]

pytestmark = pytest.mark.usefixtures("natively")


def build(folder: Path, name: str, text: str) -> Path:
    """The extension with one of its files replaced; the others' object files are in ``folder``."""
    source = folder / name
    source.write_text(text)
    subprocess.run(
        ["cc", *FLAGS, "-I", NATIVE, "-c", source, "-o", source.with_suffix(".mutant")], check=True
    )
    others = [path for path in folder.glob("*.o") if path.stem != source.stem]
    extension = folder / "mutant.so"
    subprocess.run(["cc", "-shared", *others, source.with_suffix(".mutant"), "-o", extension], check=True)
    return extension


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler to make mutants with")
    folder = tmp_path_factory.mktemp("objects")
    for source in NATIVE.glob("*.c"):
        subprocess.run(["cc", *FLAGS, "-c", source, "-o", folder / f"{source.stem}.o"], check=True)
    return folder


def run(extension: Path, *scenarios: str) -> subprocess.CompletedProcess[str]:
    source = Path(tack.__file__).parents[1]
    tests = Path(__file__).parents[1]
    return subprocess.run(
        [sys.executable, "-m", "dispatch.scenarios", extension, *scenarios],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (source, tests))), "TACK_VERIFY": "0"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_scenarios_pass_with_the_extension_as_it_is(objects: Path) -> None:
    extension = build(objects, "values.c", (NATIVE / "values.c").read_text())
    done = run(extension, *dict.fromkeys(name for name, *_ in MUTANTS))
    assert done.stdout == "passed\n", done.stderr


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant[0])
def test_a_mutant_is_noticed(objects: Path, tmp_path: Path, mutant: tuple[str, str, str, str]) -> None:
    scenario, name, old, new = mutant
    text = (NATIVE / name).read_text()
    assert text.count(old) == 1
    folder = shutil.copytree(objects, tmp_path / "objects")
    done = run(build(folder, name, text.replace(old, new)), scenario)
    assert done.returncode != 0
    # It computes the wrong thing, or crashes: it does not merely fail to load or to warm up.
    assert "AssertionError" in done.stderr or done.returncode < 0, done.stderr
    assert "never dispatched natively" not in done.stderr
