"""How much a key redraws: counted, since a clock would measure the machine."""

from __future__ import annotations

import time

from tests.view.synthetic import make_source
from tui.app import KldiveApp
from workbench.view.state import Cell


async def test_a_cursor_move_draws_the_lines_it_touches_and_no_others() -> None:
    app = KldiveApp(make_source(num_layers=48, num_rows=600, noise=1e-3))
    async with app.run_test(size=(200, 60)) as pilot:
        app.show(app.model.move_to(Cell(20, 300)))
        await pilot.pause()
        for action, most in (("cursor.right", 1), ("cursor.down", 2), ("cursor.left", 1)):
            before = app.grid.lines_drawn
            app.perform(action)
            await pilot.pause()
            assert app.grid.lines_drawn - before <= most, action


async def test_a_cursor_move_in_a_wrapped_grid_draws_its_line_and_its_heading() -> None:
    app = KldiveApp(make_source(num_layers=4, num_rows=600, noise=1e-3))
    async with app.run_test(size=(120, 40)) as pilot:
        app.show(app.model.move_to(Cell(1, 5)))
        await pilot.pause()
        for action, most in (("cursor.right", 2), ("cursor.down", 3)):
            before = app.grid.lines_drawn
            app.perform(action)
            await pilot.pause()
            assert app.grid.lines_drawn - before <= most, action


async def test_a_line_costs_no_more_segments_than_it_has_runs() -> None:
    app = KldiveApp(make_source(num_layers=96, num_rows=512))
    async with app.run_test(size=(200, 60)) as pilot:
        await pilot.pause()
        lines = [app.grid.render_line(y) for y in range(app.grid.size.height)]
        idle_runs = 2 * 12
        assert max(len(list(line)) for line in lines) <= idle_runs


async def test_the_handler_of_a_key_is_short() -> None:
    # Processor time of this thread, best of many: what the machine does besides does not count.
    app = KldiveApp(make_source(num_layers=96, num_rows=512, noise=1e-3))
    async with app.run_test(size=(200, 60)) as pilot:
        await pilot.pause(0.2)
        best = float("inf")
        for _ in range(12):
            start = time.thread_time()
            app.perform("cursor.right")
            best = min(best, time.thread_time() - start)
            await pilot.pause()
        assert best < 0.016
