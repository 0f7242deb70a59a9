import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.view.geometry import Geometry, Viewport, fitting_zoom, opening_zoom, plan
from workbench.view.state import DENSE_ZOOM, GLYPH_ZOOM, TEXT_ZOOM, Cell

VIEWPORTS = st.builds(
    Viewport,
    columns=st.integers(20, 200),
    lines=st.integers(3, 60),
    fit_layers=st.booleans(),
    glyphs_only=st.booleans(),
)
PLANS = st.builds(
    plan,
    num_layers=st.integers(1, 100),
    num_rows=st.integers(1, 3000),
    zoom=st.integers(0, 9),
    token_width=st.integers(1, 12),
    viewport=VIEWPORTS,
)


@given(PLANS, st.data())
def test_what_is_drawn_at_a_cell_covers_that_cell(layout: Geometry, data: st.DataObject) -> None:
    layer = data.draw(st.integers(0, layout.num_layers - 1))
    row = data.draw(st.integers(0, layout.num_rows - 1))
    line, character = layout.locate(Cell(layer, row))
    assert 0 <= line < layout.height
    assert 0 <= character < layout.width
    found = layout.cell_at(line, character)
    assert found is not None
    assert found.row <= row < found.row + layout.rows_per_column
    assert found.layer <= layer < found.layer + layout.layers_per_line
    band, inner = layout.line_kind(line)
    assert inner is not None
    assert layout.rows_of_band(band)[0] <= row < layout.rows_of_band(band)[1]
    assert layout.layers_of(inner)[0] <= layer < layout.layers_of(inner)[1]


@given(PLANS)
def test_bands_hold_every_row_once(layout: Geometry) -> None:
    rows = [row for band in range(layout.num_bands) for row in range(*layout.rows_of_band(band))]
    assert rows == list(range(layout.num_rows))


@given(PLANS)
def test_headings_stand_on_their_own_line(layout: Geometry) -> None:
    heading = layout.heading_of(0)
    assert (heading is None) == (not layout.wrapped)
    if heading is not None:
        assert layout.line_kind(heading) == (0, -1)
        assert layout.locate(Cell(0, 0))[0] == heading + 1


@given(st.integers(1, 100), st.integers(1, 100_000), st.integers(1, 12), VIEWPORTS)
def test_the_fitting_zoom_shows_every_row(
    num_layers: int, num_rows: int, token_width: int, viewport: Viewport
) -> None:
    zoom = fitting_zoom(
        num_layers=num_layers, num_rows=num_rows, token_width=token_width, viewport=viewport
    )
    layout = plan(
        num_layers=num_layers,
        num_rows=num_rows,
        zoom=zoom,
        token_width=token_width,
        viewport=viewport,
    )
    assert layout.width <= max(viewport.columns, layout.cell_width)
    if layout.wrapped:
        assert layout.height <= viewport.lines


def test_few_layers_wrap_their_tokens_like_text() -> None:
    layout = plan(
        num_layers=4,
        num_rows=100,
        zoom=GLYPH_ZOOM,
        token_width=1,
        viewport=Viewport(columns=40, lines=20),
    )
    assert layout.wrapped
    assert layout.num_bands == 3
    assert layout.height == 3 * 6 - 1
    assert layout.locate(Cell(2, 85)) == (2 * 6 + 1 + 2, 5)


def test_many_layers_do_not_wrap() -> None:
    layout = plan(
        num_layers=96,
        num_rows=32_768,
        zoom=DENSE_ZOOM,
        token_width=4,
        viewport=Viewport(columns=140, lines=50),
    )
    assert not layout.wrapped
    assert (layout.height, layout.width) == (48, 32_768)
    assert layout.locate(Cell(95, 7)) == (47, 7)


def test_a_compact_view_pools_layers_until_they_fit() -> None:
    layout = plan(
        num_layers=96,
        num_rows=500,
        zoom=DENSE_ZOOM,
        token_width=4,
        viewport=Viewport(columns=70, lines=12, fit_layers=True),
    )
    assert layout.height <= 12
    assert layout.layers_of(0) == (0, 8)


def test_without_colour_no_two_cells_share_a_character() -> None:
    layout = plan(
        num_layers=10,
        num_rows=500,
        zoom=DENSE_ZOOM + 2,
        token_width=1,
        viewport=Viewport(columns=70, lines=30, glyphs_only=True),
    )
    assert not layout.half_blocks
    assert layout.layers_per_line == 1


@pytest.mark.parametrize(
    ("num_layers", "num_rows", "lines", "zoom"),
    [(4, 1500, 33, TEXT_ZOOM), (24, 1500, 33, GLYPH_ZOOM), (24, 8, 33, TEXT_ZOOM),
     (96, 32_768, 52, DENSE_ZOOM)],
)  # fmt: skip
def test_the_opening_zoom_suits_the_model(
    num_layers: int, num_rows: int, lines: int, zoom: int
) -> None:
    viewport = Viewport(columns=60, lines=lines)
    found = opening_zoom(num_layers=num_layers, num_rows=num_rows, token_width=3, viewport=viewport)
    assert found == zoom
