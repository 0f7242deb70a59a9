/** Keys, requests and answers, the cache of tiles, and what is said aloud. */
import assert from "node:assert/strict";
import { test } from "node:test";

import { widget } from "./load.mjs";

/** @type {import("../../../workbench/widgets/divergence.js").Action[]} */
const ACTIONS = JSON.parse(process.env.KLDIVE_ACTIONS ?? "[]");

test("every key of the table leads to its action", () => {
  assert.ok(ACTIONS.length > 30);
  for (const action of ACTIONS) {
    for (const key of action.keys) assert.equal(widget.actionOf(ACTIONS, { key }), action);
  }
});

test("the hint names keys as they are bound", () => {
  assert.equal(widget.hintOf(ACTIONS), "click the grid, then: h j k l move · n N next, previous · " +
    "f first, next class · 1–6 lens · z Z 0 zoom · ? every key · Esc back to the notebook");
  const own = [{ id: "jump.first", names: ["F3"] }, { id: "help.show", names: [] }];
  assert.equal(widget.hintOf(own), "click the grid, then: F3 first, next class");
});

test("chords stay with the browser and the notebook", () => {
  for (const chord of [{ ctrlKey: true }, { metaKey: true }, { altKey: true }]) {
    assert.equal(widget.actionOf(ACTIONS, { key: "n", ...chord }), null);
    assert.equal(widget.keepsKey({ key: "s", ...chord }), false);
  }
  assert.equal(widget.keepsKey({ key: "Enter", shiftKey: true }), false);
  assert.equal(widget.keepsKey({ key: "Tab" }), false);
});

test("letters that edit a notebook never reach it", () => {
  for (const key of ["d", "a", "b", "x", "m", "0", "Enter"]) {
    assert.equal(widget.keepsKey({ key }), true);
  }
});

function channel() {
  /** @type {string[]} */
  const sent = [];
  const clock = { now: 0 };
  return { sent, clock, channel: new widget.Channel((r) => sent.push(r.id), () => clock.now) };
}

test("one request flies, the newest waits, an old answer is dropped", () => {
  const { sent, channel: found } = channel();
  for (const id of ["1", "2", "3"]) found.ask({ id });
  assert.deepEqual(sent, ["1"]);
  assert.equal(found.take("1"), false);
  assert.deepEqual(sent, ["1", "3"]);
  assert.equal(found.take("2"), false);
  assert.equal(found.take("3"), true);
});

test("a request that nobody answers does not block the next for ever", () => {
  const { sent, clock, channel: found } = channel();
  found.ask({ id: "1" });
  clock.now = 60_000;
  found.ask({ id: "2" });
  assert.deepEqual(sent, ["1", "2"]);
  assert.equal(found.take("1"), false);
  assert.equal(found.take("2"), true);
});

test("the tile that was used longest ago goes first", () => {
  const cache = new widget.TileCache(2);
  cache.set("a", 1);
  cache.set("b", 2);
  assert.equal(cache.get("a"), 1);
  cache.set("c", 3);
  assert.deepEqual([cache.get("a"), cache.get("b"), cache.get("c")], [1, undefined, 3]);
});

test("tiles of another grid have another key", () => {
  const key = widget.TileCache.key;
  assert.notEqual(key("router|diff|bf16|", 0, 0, 0), key("router|diff|bitwise|", 0, 0, 0));
  assert.notEqual(key("g", 0, 0, 512), key("g", 1, 0, 512));
});

test("a cell is said as layer, token and meaning", () => {
  const facts = { token: "'+' id 3", meaning: "one expert differs" };
  assert.equal(widget.spoken([12, 4096], facts),
    "layer 12 token 4096, '+' id 3, one expert differs");
});

test("the module offers a widget and nothing on the page yet", () => {
  assert.equal(typeof widget.default.render, "function");
});

/** @typedef {import("../../../workbench/widgets/divergence.js").Answers["tile"]} TileAnswer */

/** @type {TileAnswer} */
const ANSWER = { id: "v:1", op: "tile", shape: [2, 3], grid: "g", level: 0, l0: 0, t0: 0 };

test("bytes are the same whether they come bare or as a view of more", () => {
  const all = Uint8Array.from([9, 1, 2, 3, 9]);
  const view = new DataView(all.buffer, 1, 3);
  assert.deepEqual([...widget.bytesOf(view)], [1, 2, 3]);
  assert.deepEqual([...widget.bytesOf(all.slice(1, 4).buffer)], [1, 2, 3]);
  for (const lost of [null, undefined]) assert.equal(widget.bytesOf(lost).length, 0);
});

test("a tile keeps its bytes when the message they came in is used again", () => {
  const message = Uint8Array.from([2, 3, 4, 5, 6, 7]);
  const tile = widget.tileOf(ANSWER, [new DataView(message.buffer)]);
  message.fill(0);
  assert.deepEqual([...tile.codes], [2, 3, 4, 5, 6, 7]);
  assert.deepEqual([tile.shape, tile.error], [[2, 3], undefined]);
});

test("a tile that lost its bytes is an error, never a grid of something else", () => {
  for (const buffers of [[], [new ArrayBuffer(5)]]) {
    const { error, shape } = widget.tileOf(ANSWER, buffers);
    assert.match(error ?? "", /lost on its way here: expected 2 x 3 bytes, got [05]\n/);
    assert.deepEqual(shape, [0, 0]);
  }
});

test("a tile that was refused carries the reason", () => {
  assert.equal(widget.tileOf({ id: "v:1", op: "tile", error: "no lens" }, []).error, "no lens");
});

test("a step in a list goes round, and starts at the end it comes from", () => {
  const steps = (/** @type {number} */ step) =>
    [-1, 0, 1, 2].map((place) => widget.steppedTo(place, step, 3));
  assert.deepEqual(steps(1), [0, 1, 2, 0]);
  assert.deepEqual(steps(-1), [2, 2, 0, 1]);
});
