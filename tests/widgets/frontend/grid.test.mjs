/** Pooling, places on the canvas, and which tiles a window needs. */
import assert from "node:assert/strict";
import { test } from "node:test";

import { widget } from "./load.mjs";

const { GUTTER, RULER } = widget;

/**
 * A small generator of whole numbers below `limit`, the same every time.
 * @param {number} seed
 */
function numbers(seed) {
  let state = seed;
  return (/** @type {number} */ limit) => {
    state = (state * 1103515245 + 12345) % 2147483648;
    return Math.floor((state / 2147483648) * limit);
  };
}

test("pooling keeps the largest code of every cell beneath", () => {
  const codes = Uint8Array.from([1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 9]);
  assert.deepEqual([...widget.poolGrid(codes, 3, 4, 2, 2)], [2, 4, 6, 9]);
});

test("no cell is lost at any size, and none is made up", () => {
  const below = numbers(1);
  for (let round = 0; round < 200; round++) {
    const [rows, columns] = [1 + below(9), 1 + below(40)];
    const [outRows, outColumns] = [1 + below(9), 1 + below(40)];
    const codes = Uint8Array.from({ length: rows * columns }, () => 1 + below(8));
    const pooled = widget.poolGrid(codes, rows, columns, outRows, outColumns);
    assert.equal(pooled.length, outRows * outColumns);
    assert.equal(Math.max(...pooled), Math.max(...codes));
    assert.ok([...pooled].every((code) => codes.includes(code)));
  }
});

test("a grid is spread by repeating its cells", () => {
  const pooled = widget.poolGrid(Uint8Array.from([1, 2]), 1, 2, 2, 4);
  assert.deepEqual([...pooled], [1, 1, 2, 2, 1, 1, 2, 2]);
});

test("an empty grid gives an empty picture", () => {
  assert.deepEqual([...widget.poolGrid(new Uint8Array(0), 0, 0, 1, 2)], [0, 0]);
});

test("layers whose tokens were lost give a picture of nothing, not of equal cells", () => {
  assert.deepEqual([...widget.poolGrid(new Uint8Array(0), 4, 0, 2, 2)], [0, 0, 0, 0]);
});

test("a token's overview column is the one whose tokens hold it", () => {
  for (const [rows, columns] of [[5000, 1024], [60, 60], [1025, 1024], [7, 3]]) {
    const starts = Array.from({ length: columns }, (_, i) => Math.floor((i * rows) / columns));
    for (let row = 0; row < rows; row += 1 + Math.floor(rows / 97)) {
      const wanted = starts.filter((start) => start <= row).length - 1;
      assert.equal(widget.columnOf(row, rows, columns), wanted);
    }
  }
});

/** @type {import("../../../workbench/widgets/divergence.js").View} */
const view = { window: [2, 6, 100, 190], step: 1, cellWidth: 7, cellHeight: 20, perBand: 20 };

test("what is drawn at a place is found at that place", () => {
  for (let layer = 2; layer < 6; layer++) {
    for (let row = 100; row < 190; row += 2) {
      const place = widget.placeOf(view, [layer, row]);
      assert.ok(place);
      assert.deepEqual(widget.hitTest(place[0] + 3, place[1] + 10, view), [layer, row]);
    }
  }
});

test("tokens go on in the next band", () => {
  assert.equal(widget.columnsOf(view), 45);
  assert.deepEqual(widget.placeOf(view, [2, 100]), [GUTTER, RULER]);
  assert.deepEqual(widget.placeOf(view, [2, 140]), [GUTTER, widget.bandHeight(view) + RULER]);
});

test("outside the cells there is no cell", () => {
  assert.equal(widget.hitTest(GUTTER - 1, RULER + 5, view), null);
  assert.equal(widget.hitTest(GUTTER + 5, RULER - 1, view), null);
  assert.equal(widget.hitTest(GUTTER + 20 * 7, RULER + 5, view), null);
  assert.equal(widget.hitTest(GUTTER + 5, RULER + 4 * 20 + 1, view), null);
  assert.equal(widget.hitTest(GUTTER + 6 * 7, 2 * widget.bandHeight(view) + RULER + 5, view), null);
  assert.equal(widget.placeOf(view, [1, 100]), null);
  assert.equal(widget.placeOf(view, [2, 190]), null);
});

test("a window asks for every tile that it touches and no other", () => {
  assert.deepEqual(widget.tilesOf([0, 4, 0, 60], 0), [[0, 0]]);
  assert.deepEqual(widget.tilesOf([90, 100, 500, 520], 0), [[0, 0], [0, 512], [96, 0], [96, 512]]);
  assert.deepEqual(widget.tilesOf([0, 4, 1024, 2048], 1), [[0, 512]]);
  assert.deepEqual(widget.tilesOf([0, 4, 5, 5], 0), []);
});

test("a window never leaves the comparison, and starts on a column", () => {
  const size = { layers: 8, rows: 1000 };
  assert.deepEqual(widget.panned([0, 4, 0, 100], -1, -3, 0, size), [0, 4, 0, 100]);
  assert.deepEqual(widget.panned([0, 4, 0, 100], 99, 9999, 0, size), [4, 8, 900, 1000]);
  assert.deepEqual(widget.panned([0, 4, 8, 108], 0, 1, 3, size), [0, 4, 16, 116]);
  assert.equal(widget.panned([0, 4, 0, 101], 0, 9999, 3, size)[2] % 8, 0);
});

test("a rectangle holds both of its corners", () => {
  assert.deepEqual(widget.rectangleOf([3, 10], [1, 4], 0), [1, 4, 4, 11]);
  assert.deepEqual(widget.rectangleOf([0, 16], [0, 24], 3), [0, 1, 16, 32]);
});

test("room is what a width holds", () => {
  assert.deepEqual(widget.roomOf(GUTTER + 700, 4, 7),
    { columns: 100, bands: 3, layers: 17, dense_layers: 17 });
  assert.equal(widget.roomOf(GUTTER + 700, 96, 7).bands, 1);
  assert.equal(widget.roomOf(GUTTER + 700, 96, 7).dense_layers, 107);
  assert.ok(widget.roomOf(GUTTER + 700, 96, 7).layers < 30);
});
