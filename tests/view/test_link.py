from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.view.synthetic import make_source
from workbench.address import Address, parse_address
from workbench.errors import UsageError
from workbench.view.link import Link, is_link, parse_link
from workbench.view.model import ViewModel
from workbench.view.state import Cell


def test_a_link_reads_as_it_is_written_in_the_manual() -> None:
    text = "kldive://run/comparison?at=L12.t4096.topk_ids&lens=router&tol=bf16&class=flip"
    link = parse_link(text)
    assert link == Link(
        directory="run/comparison",
        at=parse_address("L12 t4096 topk_ids"),
        lens="router",
        tolerance="bf16",
        klass="flip",
    )
    assert str(link) == text


@given(directory=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30))
def test_any_directory_survives(directory: str) -> None:
    link = Link(directory=f"/runs/{directory}", at=Address(layer=2, row=14))
    assert parse_link(str(link)) == link


def test_the_command_is_one_line_that_a_shell_takes_as_it_is() -> None:
    link = Link(directory="/runs/it's $HOME; rm", at=Address(row=3), lens="gates")
    assert "\n" not in link.command
    assert link.command.startswith("kldive tui 'kldive:///runs/")
    assert "$HOME" not in link.command


def test_two_captures_are_enough() -> None:
    assert parse_link("kldive://?a=run/a&b=run/b") == Link(a="run/a", b="run/b")


@pytest.mark.parametrize(
    "text",
    [
        "http://x/y",
        "kldive://",
        "kldive://?a=1",
        "kldive://x?lens=colour",
        "kldive://x?where=1",
        "kldive://x?at=L1&at=L2",
        "kldive://x?at=nowhere_at_all",
        "kldive://x#L1",
        "",
    ],
)
def test_anything_else_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(UsageError):
        parse_link(text)


def test_what_is_meant_as_a_link_is_known_by_its_scheme() -> None:
    assert is_link(" kldive://x")
    assert not is_link("L12 t4")


def test_a_view_opens_again_from_its_own_link() -> None:
    model = ViewModel(make_source(num_rows=60, flips=((1, 5),), noise=1e-3))
    model.act("lens.gates")
    model.move_to(Cell(2, 40))
    model.choose_tolerance("fp32*2")
    model.act("side.cycle")
    link = parse_link(str(model.link()))
    other = ViewModel(make_source(num_rows=60, flips=((1, 5),), noise=1e-3))
    other.open_link(link)
    wanted = model.state
    for name in ("cell", "lens", "side", "tolerance", "klass", "site"):
        assert getattr(other.state, name) == getattr(wanted, name), name


def test_a_link_of_another_comparison_is_not_opened_here() -> None:
    model = ViewModel(make_source(num_rows=60))
    with pytest.raises(UsageError, match="another comparison"):
        model.open_link(Link(directory=str(Path("somewhere/else").resolve())))
