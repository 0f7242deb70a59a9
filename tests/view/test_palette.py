from itertools import pairwise

import pytest

from workbench.view import palette
from workbench.view.palette import LOOKS, NUM_CODES, contrast, relative_luminance


def test_text_reads_on_every_level() -> None:
    assert len(LOOKS) == NUM_CODES
    for look in LOOKS:
        assert contrast(look.text, look.fill) >= 4.5, look


@pytest.mark.parametrize(
    ("text", "fill"),
    [
        (palette.TEXT, palette.BACKGROUND),
        (palette.MUTED, palette.BACKGROUND),
        (palette.TEXT, palette.RAISED),
        (palette.MUTED, palette.RAISED),
        (palette.SIDE_A_TEXT, palette.BACKGROUND),
        (palette.SIDE_B_TEXT, palette.BACKGROUND),
        (palette.GOOD, palette.BACKGROUND),
        ("#ffffff", palette.SIDE_A_FILL),
        ("#000000", palette.SIDE_B_FILL),
    ],
)
def test_text_reads_on_the_surfaces(text: str, fill: str) -> None:
    assert contrast(text, fill) >= 4.5


def test_the_ramp_rises_in_lightness() -> None:
    # CIE L* of the luminance; a step of 12 is told apart without colour.
    lightness = [116 * relative_luminance(c) ** (1 / 3) - 16 for c in palette.RAMP]
    assert all(later - earlier >= 11 for earlier, later in pairwise(lightness))


def test_every_code_has_its_own_glyph_one_column_wide() -> None:
    glyphs = [look.glyph for look in LOOKS]
    assert len(set(glyphs)) == NUM_CODES
    assert all(len(glyph) == 1 for glyph in glyphs)


def test_text_reads_on_light_ground_too() -> None:
    pairs = [(look.text, look.fill) for look in LOOKS]
    pairs += [(look.fill, palette.BACKGROUND) for look in LOOKS[5:]]
    grounds = (palette.BACKGROUND, palette.PANEL, palette.RAISED)
    texts = (palette.TEXT, palette.MUTED, palette.ACCENT)
    pairs += [(text, ground) for ground in grounds for text in texts]
    pairs += [(t, palette.BACKGROUND) for t in (palette.GOOD, palette.SIDE_A_TEXT)]
    pairs += [("#ffffff", palette.SIDE_A_FILL), ("#000000", palette.SIDE_B_FILL)]
    pairs += [(palette.SIDE_B_TEXT, palette.BACKGROUND), ("#000000", palette.ACCENT)]
    for text, fill in pairs:
        assert contrast(*palette.on_light(text, fill)) >= 4.5, (text, fill)


def test_on_light_ground_worse_is_darker() -> None:
    fills = [palette.on_light("#ffffff", look.fill)[1] for look in LOOKS[2:]]
    luminances = [relative_luminance(fill) for fill in fills]
    assert all(later < earlier for earlier, later in pairwise(luminances))


def test_contrast_of_black_and_white_is_21() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#123456", "#123456") == pytest.approx(1)
