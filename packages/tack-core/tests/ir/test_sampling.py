"""Samples of textures in both stages of the IR."""

from __future__ import annotations

import numpy as np
import pytest

import tack
from tack.ir import interpreter
from tack.ir.parser import parse
from tack.ir.printer import to_text
from tack.ir.verify import VerificationError, verify

TYPED = """
kernel k(t: f32[,,] texture, at: f32[], out: f32[]) {
  local i: i64
  parallel i in (0, 40, 1) {
    out[%i] = fetch(t, at[%i], at[add(%i, 40:i64)], at[add(%i, 80:i64)])
  }
}
"""


def test_text_round_trips() -> None:
    kernel = parse(TYPED)
    verify(kernel)
    assert to_text(parse(to_text(kernel))) == to_text(kernel)


def test_a_fetch_means_what_the_code_without_a_texture_unit_does() -> None:
    rng = np.random.default_rng(5)
    volume = rng.random((3, 4, 5), np.float32)
    where = rng.random((3, 40), np.float32)
    where[:, 0], where[:, 1] = 0, 1

    @tack.kernel
    def sampled(t, where, out):
        for i in range(out.shape[0]):
            out[i] = t.sample(where[0, i], where[1, i], where[2, i])

    expected = np.zeros(40, np.float32)
    sampled(tack.Texture3D(volume), where, expected)
    out = np.zeros(40, np.float32)
    texels = (where * np.array([[4], [3], [2]], np.float32)).reshape(-1)
    interpreter.run(parse(TYPED), {"t": volume, "at": texels, "out": out}, [(0, 1, 40)])
    np.testing.assert_allclose(out, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (" texture", "", "'t' is not a texture"),
        (", at[add(%i, 80:i64)]", "", "three parts"),
        ("at[%i]", "%i", "f32"),
    ],
)
def test_wrong_fetches_are_refused(old: str, new: str, message: str) -> None:
    with pytest.raises(VerificationError, match=message):
        verify(parse(TYPED.replace(old, new)))


def test_a_sample_whose_body_forgets_its_target_is_refused() -> None:
    text = "template k(t texture, out) {\n parallel i in (0, 8, 1) {\n sample %a = t(0, 0, 0) {\n }\n }\n}\n"
    with pytest.raises(VerificationError, match="does not assign its target 'a'"):
        verify(parse(text))
