from __future__ import annotations

import re
import subprocess
import sys
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree as ET

import polars as pl
import pytest
from playwright.sync_api import sync_playwright

from tests.browser.browsers import chromium, launch_arguments
from tests.captures import ROLLOUT, TRAINER, make_pair
from tests.view.attributed import attributed
from tests.view.synthetic import make_source
from tests.widgets.sources import put, seven_rows
from workbench.comparison.result import Comparison
from workbench.comparison.run import compare
from workbench.errors import UsageError
from workbench.view import palette
from workbench.view.palette import contrast
from workbench.widgets import chart as look
from workbench.widgets import charts
from workbench.widgets.charts import Chart

SVG = "{http://www.w3.org/2000/svg}"
NAN = float("nan")


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """Real captures whose routed experts differ by a factor in one layer."""
    directory = tmp_path_factory.mktemp("charts")
    b = replace(TRAINER, dtype="bfloat16", rounding="often", scale_experts=(1, 1.5))
    pair = make_pair(directory, a=replace(ROLLOUT, dtype="bfloat16"), b=b)
    return compare(pair.a, pair.b, out=directory / "comparison")


OF_A_COMPARISON: dict[str, Callable[[Comparison], Chart]] = {
    "expert_load": charts.expert_load,
    "flips_by_margin": charts.flips_by_margin,
    "gate_weights": charts.gate_weights,
    "kl_by_first_layer": charts.kl_by_first_layer,
    "kl_by_modality": charts.kl_by_modality,
    "kl_by_position": charts.kl_by_position,
    "layer_profile": charts.layer_profile,
    "probabilities": charts.probabilities,
    "ratios": charts.ratios,
}


def local() -> Chart:
    errors = {(1, row, "routed_experts"): 0.5 for row in range(5)}
    return charts.local_errors(attributed(make_source(num_layers=2), errors, noise=1e-3))


def picture(drawn: Chart) -> ET.Element:
    return ET.fromstring(drawn.svg())


def texts(drawn: Chart) -> list[str]:
    return [text for element in picture(drawn).iter(f"{SVG}text") for text in element.itertext()]


def test_every_public_chart_is_drawn_here() -> None:
    assert set(charts.__all__) == {"Chart", "local_errors", *OF_A_COMPARISON}


@pytest.mark.parametrize("name", [*OF_A_COMPARISON, "local_errors"])
def test_a_chart_says_what_it_covers(comparison: Comparison, name: str) -> None:
    drawn = local() if name == "local_errors" else OF_A_COMPARISON[name](comparison)
    assert re.match(r"n = [\d,]+ of [\d,]+ .* compared \(\d+\.\d%\)", drawn.notes[0])
    shown = texts(drawn)
    assert drawn.title in " ".join(shown)
    assert set(drawn.notes) <= set(shown)
    assert 0 < drawn.frame.height <= 5_000


@pytest.mark.parametrize("name", [*OF_A_COMPARISON, "local_errors"])
def test_nothing_shown_reaches_for_the_network(comparison: Comparison, name: str) -> None:
    drawn = local() if name == "local_errors" else OF_A_COMPARISON[name](comparison)
    shown = drawn._repr_mimebundle_()
    assert set(shown) == {"text/html", "text/plain"}
    page = unquote(shown["text/html"])
    # Names of the SVG's own language are no addresses that anything is loaded from.
    names = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert set(re.findall(r"https?://[^\"'\s>]+", page)) <= names
    assert "<script" not in page
    assert "@import" not in page
    assert "url(" not in page.replace("url(#", "")
    assert len(shown["text/html"]) < 200_000


def test_direction_and_sampling_side_stand_in_the_title(comparison: Comparison) -> None:
    assert charts.kl_by_position(comparison).title == (
        "KL(A || B) by position, mean, over tokens sampled from A"
    )
    assert charts.ratios(comparison).title.startswith("Importance ratio p_B / p_A, over tokens")
    assert "A against B" in charts.layer_profile(comparison).title
    labels = texts(charts.probabilities(comparison))
    assert {"p on A (rollout)", "p on B (trainer)"} <= set(labels)


def test_sides_have_their_colours(comparison: Comparison) -> None:
    fills = {e.get("fill") for e in picture(charts.expert_load(comparison)).iter()}
    assert {palette.SIDE_A_FILL, palette.SIDE_B_FILL} <= fills


def test_a_missing_mean_is_not_drawn() -> None:
    source = seven_rows()
    # Positions 0 to 3; position 0 has no score, so k3 has three points, and one stands for ln 2.
    drawn = charts.kl_by_position(source)
    points = [e for e in picture(drawn).iter(f"{SVG}path") if e.get("fill") == "#009e73"]
    legend = 1
    assert len(points) == 3 + legend
    assert "0" in texts(drawn)


def test_a_layer_without_numbers_is_a_gap() -> None:
    source = make_source(num_layers=3, num_rows=7, texts=list("abcdefg"), noise=0.01)
    put(source, "output.rel_l2", [[0.01] * 7, [NAN] * 7, [0.02] * 7])
    drawn = charts.layer_profile(source, ["output"])
    assert drawn.frame["p95"].to_list() == [pytest.approx(0.01), None, pytest.approx(0.02)]
    points = [e for e in picture(drawn).iter(f"{SVG}path") if e.get("fill") == "#009e73"]
    assert len(points) == 2 + 1


def test_an_axis_names_zero_only_where_there_is_one() -> None:
    source = make_source(num_layers=2, num_rows=7, texts=list("abcdefg"))
    layer_zero = 1
    for least, zeros, small in ((0.01, 0, 0), (0.0, 1, 0), (1e-12, 0, 1)):
        put(source, "output.rel_l2", [[least] * 7, [0.02] * 7])
        shown = texts(charts.layer_profile(source, ["output"]))
        assert shown.count("0") == layer_zero + zeros
        assert shown.count("0..1e-9") == small


def test_both_themes_read_well() -> None:
    for colours in (list(look.DARK), list(look.DARK.values())):
        card, text, muted, _ = colours
        assert contrast(text, card) >= 7
        assert contrast(muted, card) >= 4.5
    for colour in (palette.SIDE_A_FILL, palette.SIDE_B_FILL):
        assert contrast(colour, look.DARK[look.CARD]) >= 3


def test_the_picture_carries_both_themes(comparison: Comparison) -> None:
    drawn = charts.kl_by_position(comparison)
    text = drawn.svg()
    for light, dark in look.DARK.items():
        assert f'fill="{light}"' in text or f'stroke="{light}"' in text
        assert f'[fill="{light}"]{{fill:{dark}}}' in text


def test_saved_files_hold_the_picture(comparison: Comparison, tmp_path: Path) -> None:
    drawn = charts.probabilities(comparison)
    light = drawn.save(tmp_path / "p.png").read_bytes()
    dark = drawn.save(tmp_path / "dark.png", theme="dark").read_bytes()
    assert light.startswith(b"\x89PNG")
    assert light != dark
    assert drawn.save(tmp_path / "p.svg").read_text("utf-8") == drawn.svg()


def test_another_ending_is_refused(comparison: Comparison, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"\.png or \.svg"):
        charts.probabilities(comparison).save(tmp_path / "p.pdf")
    assert list(tmp_path.iterdir()) == []


def test_nothing_to_draw_still_draws() -> None:
    source = seven_rows(b=(None,) * 7)
    for draw in (
        charts.kl_by_position,
        charts.kl_by_first_layer,
        charts.kl_by_modality,
        charts.probabilities,
        charts.ratios,
    ):
        drawn = draw(source)
        assert drawn.notes[0].startswith("n = 0 of 5 rows")
        assert drawn.title in " ".join(texts(drawn))


def test_many_layers_stay_readable_and_small() -> None:
    flips = tuple((layer, layer + 12) for layer in range(96))
    source = attributed(make_source(num_layers=96, num_rows=200, noise=0.01, flips=flips))
    places = pl.int_range(200, dtype=pl.Int32)
    source.rows = source.rows.with_columns(places.alias("offset_a"), places.alias("offset_b"))
    for drawn in (
        charts.layer_profile(source),
        charts.local_errors(source),
        charts.kl_by_first_layer(source),
    ):
        assert len(drawn._repr_mimebundle_()["text/html"]) < 200_000
    assert "dashed: budget" in charts.layer_profile(source).notes[1]
    shown = [text for text in texts(charts.layer_profile(source)) if text.isdigit()]
    assert shown == [str(layer) for layer in range(0, 96, 6)]
    assert any(note.startswith("n per layer") for note in charts.kl_by_first_layer(source).notes)


def test_no_exact_kl_is_said() -> None:
    source = seven_rows()
    assert not any("no exact KL" in note for note in charts.kl_by_position(source).notes)
    source.rows = source.rows.with_columns(pl.lit(None, pl.Float32).alias("kl_exact"))
    assert any("no exact KL" in note for note in charts.kl_by_position(source).notes)


def test_text_of_a_chart_is_its_frame(comparison: Comparison) -> None:
    drawn = charts.kl_by_position(comparison)
    plain = drawn._repr_mimebundle_()["text/plain"]
    assert plain.startswith(drawn.title)
    assert "max_abs_dlogp" in plain


@pytest.mark.slow
def test_charts_never_load_torch() -> None:
    code = (
        "import sys; from workbench.widgets import charts; "
        "sys.exit(any(m in sys.modules for m in ('torch', 'transformers', 'vllm')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.browser
@pytest.mark.slow
def test_a_browser_cuts_no_text_with_a_wider_font(comparison: Comparison) -> None:
    drawn = {name: make(comparison) for name, make in OF_A_COMPARISON.items()}
    drawn["local_errors"] = local()
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium(), args=launch_arguments())
        page = browser.new_page()
        for name, chart in drawn.items():
            # The widest of the fonts that stand in where the named ones are missing.
            page.set_content(chart.svg().replace(look.FONT, "DejaVu Sans, Verdana, sans-serif"))
            cut = page.evaluate(_CUT)
            assert not cut, f"{name}: {cut}"
        browser.close()


_CUT = """() => {
    const card = document.querySelector("svg").getBoundingClientRect();
    return [...document.querySelectorAll("text")].filter(text => {
        const box = text.getBoundingClientRect();
        return box.left < card.left || box.right > card.right
            || box.top < card.top || box.bottom > card.bottom;
    }).map(text => text.textContent);
}"""


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_browser_draws_the_card_in_the_page_s_theme(
    comparison: Comparison, tmp_path: Path, theme: str
) -> None:
    shown = charts.kl_by_position(comparison)._repr_mimebundle_()["text/html"]
    page = tmp_path / "page.html"
    is_light = "true" if theme == "light" else "false"
    body = f'<body style="margin:0" data-jp-theme-light="{is_light}">{shown}'
    page.write_text(f"<!doctype html><meta charset=utf-8>{body}", "utf-8")
    target = tmp_path / "page.png"
    browser = chromium()
    assert browser is not None
    subprocess.run(
        [
            browser,
            "--headless",
            *launch_arguments(),
            "--disable-gpu",
            f"--user-data-dir={tmp_path / 'profile'}",
            "--window-size=400,300",
            f"--screenshot={target}",
            page.as_uri(),
        ],
        check=True,
        capture_output=True,
        timeout=120,
    )
    expected = look.CARD if theme == "light" else look.DARK[look.CARD]
    assert first_pixel(target) == expected


def first_pixel(path: Path) -> str:
    """Colour of the upper left pixel of a PNG; the first pixel of the first line is unfiltered."""
    data, at, packed = path.read_bytes(), 8, b""
    while at < len(data):
        length = int.from_bytes(data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        packed += body if kind == b"IDAT" else b""
        at += 12 + length
    return "#" + zlib.decompress(packed)[1:4].hex()
