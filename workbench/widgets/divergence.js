/**
 * The notebook face of kldive's stepper: overview, grid, inspector and keys over a view-model that
 * lives in Python. Draws what it is told; what an action does is decided there. No imports, no
 * network, no state of its own but pixels. Grids are uint8 codes, row by row; `looks` give a code's
 * colour and glyph. Axes: layer down, token across; a column is 2 ** step tokens.
 */

/** @typedef {[number, number]} Cell Layer and token. */
/** @typedef {[number, number, number, number]} Window First layer, stop, first token, stop. */
/** @typedef {{fill: string, text: string, glyph: string}} Look */
/** @typedef {{window: Window, step: number, cellWidth: number, cellHeight: number,
 *   perBand: number}} View Tokens beyond `perBand` columns go on in the next band, below. */
/** @typedef {View & {width: number, height: number, text: boolean, at: number}} Drawn The view
 *   whose pixels stand on the canvas: its size, whether tokens have their text, and when. */
/** @typedef {{y: number, first: number, columns: number}} Band Top, first column of the level. */
/** @typedef {{id: string, keys: string[], names: string[], title: string, help: string,
 *   group: string, kind: "model" | "menu" | "prompt" | "copy" | "read" | "help" | "",
 *   ask: string}} Action */
/** @typedef {Pick<KeyboardEvent, "key"> & Partial<Pick<KeyboardEvent,
 *   "ctrlKey" | "metaKey" | "altKey" | "shiftKey">>} Key */
/** @typedef {{codes: Uint8Array, shape: Cell, error?: string}} Tile */
/** @typedef {{layer: number, column: number, tile: Tile | null}} TilePlace Null: on its way. */

// What Python tells. Sides are A and B; texts are ready to be shown.

/** @typedef {"plain" | "muted" | "good" | "strong"} Tone */
/** @typedef {{text: string, tone: "good" | "finding" | "plain" | "warning"}} Sentence */
/** @typedef {{layers: number, rows: number, kinds: string[], model: string, name: string,
 *   sides: [Side, Side], warnings: string[], character: number, looks: Look[],
 *   colors: Record<"background" | "panel" | "raised" | "rule" | "text" | "muted" | "accent"
 *     | "first" | "warning" | "pin" | "a" | "b", string>,
 *   actions: Action[]}} About What never changes; `character` is the width of one in pixels. */
/** @typedef {{title: string, about: string}} Side */
/** @typedef {{grid: string, lens: string, legend: string[], verdict: Sentence,
 *   headline: Sentence, class: string, place: string, tolerance: string,
 *   side: "diff" | "a" | "b", filter: string, find: string, step: number, cell: number,
 *   dense: boolean, text: boolean, site: string, inspector: boolean, back: boolean,
 *   marks: Cell[], firsts: [number, string][], strip: Strip}} Screen What the state shows: a cell
 *   is `cell` characters wide; `firsts` are the token and the class. */
/** @typedef {{request: string, first: number, texts: string[], codes: number[],
 *   before?: boolean, after?: boolean}} Strip */
/** @typedef {{cursor: Cell, pin: Cell | null, lens: string, window: Window, selection: Window[],
 *   link: string, _about: About, _screen: Screen, _overview: DataView | null}} Traits */
/** @typedef {{id: string, title: string, head: string[], sides: ("" | "A" | "B")[],
 *   rows: {cells: string[], mark: "" | "A" | "B" | "focus" | "over", tone: Tone}[],
 *   notes: [string, Tone][]}} Panel */
/** @typedef {{at: Cell, address: string, token: string, about: string, code: number,
 *   meaning: string, panels: Panel[], profile: Profile}} Facts Everything said of a cell. */
/** @typedef {{site: string, heights: number[]}} Profile Heights are 0 to 8; -1 missing, 9 NaN. */
/** @typedef {{first: number, texts: string[], requests: number[]}} Headings */
/** @typedef {[string, string, string, string]} Choice Value, title, number, a few words. */

// The wire: a request is `{id, op, ...}`, its answer has the same id and op, or an `error`.

/** @typedef {{columns: number, bands: number, layers: number, dense_layers: number}} Room */
/** @typedef {{cell: {layer: number, token: number}, headings: {t0: number, t1: number},
 *   menu: {action: string}, copy: {action: string}, read: {action: string},
 *   choose: {action: string, value: string}, act: {action: string}, room: Room,
 *   tile: {lens: string, level: number, l0: number, l1: number, t0: number, t1: number},
 * }} Requests */
/** @typedef {{cell: Facts, headings: Headings, copy: {text: string}, read: {text: string},
 *   menu: {title: string, entries: Choice[], chosen: string}, choose: Changed, act: Changed,
 *   room: Changed, tile: {shape: Cell, grid: string, level: number, l0: number, t0: number},
 * }} Replies */
/** @typedef {{cell?: Facts}} Changed The cursor's cell comes along, which saves asking for it. */
/** @typedef {Exclude<keyof Requests, "act" | "room" | "tile">} Asked Kinds of which the newest
 *   answer counts. */
/** @typedef {{[Op in keyof Replies]: {id: string, op: Op} & ({error: string}
 *   | (Replies[Op] & {error?: undefined}))}} Answers */
/** @typedef {Answers[keyof Answers]} Answer */
/** @typedef {{[Op in Asked]: (found: Answers[Op]) => void}} Waiters */
/** @typedef {Record<Asked, Channel<{id: string, op: Asked}>>} Channels */
/** @typedef {CanvasRenderingContext2D} Pen */
/** @typedef {DataView | ArrayBuffer} Bytes */
/** @typedef {(content: Answer, buffers: Bytes[]) => void} Hear */
/** @typedef {object} Model What a notebook gives: the traits and the wire.
 * @property {<Name extends keyof Traits>(name: Name) => Traits[Name]} get
 * @property {<Name extends keyof Traits>(name: Name, value: Traits[Name]) => void} set
 * @property {() => void} save_changes
 * @property {(request: {id: string, op: keyof Requests}) => void} send
 * @property {Listen} on
 * @property {Listen} off
 */
/** @typedef {{(event: "msg:custom", hear: Hear): void,
 *   (event: `change:${keyof Traits}`, hear: () => void): void}} Listen */

export const GUTTER = 46;
export const RULER = 24;
export const TILE_LAYERS = 96;
export const TILE_COLUMNS = 512;
const OVERVIEW_HEIGHT = 34;
const MARKS_HEIGHT = 14;
const LEAST_DOT = 3;
const MAX_GRID = 430;
const MAX_CELL = 24;
const BAND_GAP = 8;
const TICK = 16;
const ANSWER_MS = 4000;
const SYNC_MS = 16;
/** The code of what is not shown; never one of a level. */
const UNKNOWN = 0;
const WATCHED = /** @type {const} */ (
  ["_screen", "_overview", "cursor", "pin", "selection", "window", "link"]);

// ------------------------------------------------------------------------------- pure functions

/**
 * Spreads a grid over another size: where cells fall together the largest code stays, never a
 * sample; where there is room a cell is repeated.
 * @param {Uint8Array} codes @param {number} rows @param {number} columns
 * @param {number} outRows @param {number} outColumns
 * @returns {Uint8Array}
 */
export function poolGrid(codes, rows, columns, outRows, outColumns) {
  const out = new Uint8Array(outRows * outColumns);
  if (!rows || !columns) return out;
  const [tops, lefts] = [edges(rows, outRows), edges(columns, outColumns)];
  for (let y = 0; y < outRows; y++) {
    const bottom = Math.max(tops[y] + 1, tops[y + 1]);
    for (let x = 0; x < outColumns; x++) {
      const right = Math.max(lefts[x] + 1, lefts[x + 1]);
      let worst = 0;
      for (let j = tops[y]; j < bottom; j++) {
        for (let i = j * columns + lefts[x]; i < j * columns + right; i++) {
          if (codes[i] > worst) worst = codes[i];
        }
      }
      out[y * outColumns + x] = worst;
    }
  }
  return out;
}

/**
 * Where each of `to` parts of `from` cells starts, and where the last one ends.
 * @param {number} from @param {number} to
 */
function edges(from, to) {
  return Int32Array.from({ length: to + 1 }, (_, i) => Math.floor((i * from) / to));
}

/**
 * The column of a pooled overview that covers a token.
 * @param {number} row @param {number} rows @param {number} columns
 */
export function columnOf(row, rows, columns) {
  return Math.floor(((row + 1) * columns - 1) / rows);
}

/**
 * Height of a layer in pixels: all layers when they fit, never too low for what a cell holds.
 * @param {number} layers @param {boolean} dense
 */
export function cellHeight(layers, dense) {
  const even = Math.floor(MAX_GRID / Math.max(1, layers));
  return Math.max(dense ? 4 : 15, Math.min(MAX_CELL, even));
}

/**
 * What a grid this wide has room for, as Python asks for it.
 * @param {number} width @param {number} layers @param {number} character
 * @returns {Room}
 */
export function roomOf(width, layers, character) {
  const fit = (/** @type {boolean} */ dense) =>
    Math.max(1, Math.floor(MAX_GRID / cellHeight(layers, dense)));
  const band = RULER + layers * cellHeight(layers, false) + BAND_GAP;
  return {
    columns: Math.max(8, Math.floor((width - GUTTER) / character)),
    bands: Math.max(1, Math.floor((MAX_GRID + BAND_GAP) / band)),
    layers: fit(false),
    dense_layers: fit(true),
  };
}

/**
 * Height of a band with its ruler and the gap below it.
 * @param {View} view
 */
export function bandHeight(view) {
  return RULER + (view.window[1] - view.window[0]) * view.cellHeight + BAND_GAP;
}

/**
 * Columns of the window.
 * @param {View} view
 */
export function columnsOf(view) {
  const [, , t0, t1] = view.window;
  return t1 > t0 ? ((t1 - 1) >> view.step) - (t0 >> view.step) + 1 : 0;
}

/**
 * Where a cell is drawn: its upper left corner, or null when it is not in the window.
 * @param {View} view @param {Cell} cell
 * @returns {[number, number] | null}
 */
export function placeOf(view, [layer, row]) {
  const [l0, l1, t0, t1] = view.window;
  if (layer < l0 || layer >= l1 || row < t0 || row >= t1) return null;
  const column = (row >> view.step) - (t0 >> view.step);
  const band = Math.floor(column / view.perBand);
  return [
    GUTTER + (column % view.perBand) * view.cellWidth,
    band * bandHeight(view) + RULER + (layer - l0) * view.cellHeight,
  ];
}

/**
 * The cell under a point of the grid's canvas, or null.
 * @param {number} x @param {number} y @param {View} view
 * @returns {Cell | null}
 */
export function hitTest(x, y, view) {
  const [l0, l1, t0, t1] = view.window;
  const height = bandHeight(view);
  const band = Math.floor(y / height);
  const across = Math.floor((x - GUTTER) / view.cellWidth);
  const down = Math.floor((y - band * height - RULER) / view.cellHeight);
  const token = ((t0 >> view.step) + band * view.perBand + across) << view.step;
  if (across < 0 || across >= view.perBand || down < 0 || l0 + down >= l1) return null;
  return token >= t1 ? null : [l0 + down, Math.max(token, t0)];
}

/**
 * The action of a key; null for chords, which stay with the browser and the notebook.
 * @template {Pick<Action, "keys">} Found
 * @param {Found[]} actions @param {Key} event
 * @returns {Found | null}
 */
export function actionOf(actions, event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return null;
  return actions.find((action) => action.keys.includes(event.key)) ?? null;
}

/**
 * The few keys to start with, as they are bound; what has no key is left out.
 * @param {Pick<Action, "id" | "names">[]} actions
 */
export function hintOf(actions) {
  const key = (/** @type {string} */ id) => actions.find((action) => action.id === id)?.names[0];
  /** @type {[string[], string, string][]} */
  const parts = [
    [["cursor.left", "cursor.down", "cursor.up", "cursor.right"], " ", "move"],
    [["jump.next", "jump.previous"], " ", "next, previous"],
    [["jump.first"], " ", "first, next class"],
    [["lens.router", "lens.local"], "–", "lens"],
    [["zoom.in", "zoom.out", "zoom.fit"], " ", "zoom"],
    [["help.show"], " ", "every key"],
    [["back"], " ", "back to the notebook"],
  ];
  const bound = parts.filter(([ids]) => ids.every(key));
  const words = bound.map(([ids, joiner, text]) => `${ids.map(key).join(joiner)} ${text}`);
  return `click the grid, then: ${words.join(" · ")}`;
}

/**
 * Whether a key has to be kept from the notebook: all that would type or edit, no chord.
 * @param {Key} event
 */
export function keepsKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return false;
  if (event.key === "Tab" || (event.key === "Enter" && event.shiftKey)) return false;
  return true;
}

/**
 * The tiles that a window needs, by layer and column where they start.
 * @param {Window} window @param {number} step
 */
export function tilesOf(window, step) {
  const [l0, l1, t0, t1] = window;
  /** @type {[number, number][]} */
  const found = [];
  if (l1 <= l0 || t1 <= t0) return found;
  const last = (t1 - 1) >> step;
  for (let l = l0 - (l0 % TILE_LAYERS); l < l1; l += TILE_LAYERS) {
    const first = t0 >> step;
    for (let c = first - (first % TILE_COLUMNS); c <= last; c += TILE_COLUMNS) found.push([l, c]);
  }
  return found;
}

/**
 * A window moved by layers and columns and kept inside the comparison.
 * @param {Window} window @param {number} layers @param {number} columns @param {number} step
 * @param {{layers: number, rows: number}} size @returns {Window}
 */
export function panned(window, layers, columns, step, size) {
  const [l0, l1, t0, t1] = window;
  const down = Math.max(0, Math.min(l0 + layers, size.layers - (l1 - l0)));
  let across = Math.max(0, Math.min(t0 + columns * 2 ** step, size.rows - (t1 - t0)));
  across -= across % 2 ** step;
  return [down, down + l1 - l0, across, Math.min(size.rows, across + t1 - t0)];
}

/**
 * A rectangle of cells between two corners, stops exclusive.
 * @param {Cell} a @param {Cell} b @param {number} step
 * @returns {Window}
 */
export function rectangleOf(a, b, step) {
  const far = Math.max(a[1], b[1]);
  return [
    Math.min(a[0], b[0]),
    Math.max(a[0], b[0]) + 1,
    Math.min(a[1], b[1]),
    far - (far % 2 ** step) + 2 ** step,
  ];
}

/**
 * What a screen reader says of a cell.
 * @param {Cell} at @param {{token?: string, meaning?: string}} facts
 */
export function spoken(at, facts) {
  const words = [`layer ${at[0]} token ${at[1]}`, facts.token, facts.meaning];
  return words.filter(Boolean).join(", ");
}

/**
 * Every byte of what came over the wire, which a host may hand over bare or as a view of more.
 * @param {Bytes | null | undefined} data
 */
export function bytesOf(data) {
  if (!data) return new Uint8Array(0);
  if (!ArrayBuffer.isView(data)) return new Uint8Array(data);
  return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
}

/**
 * A tile as it was sent; one that failed or lost its bytes on the way says so in `error`.
 * @param {Answers["tile"]} content @param {Bytes[]} buffers
 * @returns {Tile}
 */
export function tileOf(content, buffers) {
  const lost = { codes: new Uint8Array(0), shape: /** @type {Cell} */ ([0, 0]) };
  if (content.error !== undefined) return { ...lost, error: content.error };
  const { shape } = content;
  // A copy: what a host hands over may be a view of something larger that lives on.
  const codes = bytesOf(buffers[0]).slice();
  if (codes.length === shape[0] * shape[1]) return { codes, shape };
  return { ...lost, error: `part of the grid was lost on its way here: expected ${shape[0]} x ` +
    `${shape[1]} bytes, got ${codes.length}\nmove the window to ask for it again` };
}

/**
 * The entry of a list that a step leads to, round its ends; -1 stands for none yet.
 * @param {number} place @param {number} step @param {number} count
 */
export function steppedTo(place, step, count) {
  const from = place < 0 && step < 0 ? 0 : place;
  return (from + step + count) % count;
}

/**
 * The latest few tiles; the one that was used longest ago goes first.
 * @template Kept
 */
export class TileCache {
  /** @param {number} kept */
  constructor(kept = 64) {
    this.kept = kept;
    /** @type {Map<string, Kept>} */
    this.tiles = new Map();
  }
  /**
   * @param {string} grid @param {number} level Of halving. @param {number} layer
   * @param {number} column
   */
  static key(grid, level, layer, column) {
    return `${grid}#${level}#${layer}#${column}`;
  }
  /** @param {string} key */
  get(key) {
    const found = this.tiles.get(key);
    if (found) {
      this.tiles.delete(key);
      this.tiles.set(key, found);
    }
    return found;
  }
  /** @param {string} key @param {Kept} tile */
  set(key, tile) {
    this.tiles.delete(key);
    this.tiles.set(key, tile);
    for (const oldest of this.tiles.keys()) {
      if (this.tiles.size <= this.kept) break;
      this.tiles.delete(oldest);
    }
  }
}

/**
 * One kind of request: one in flight, only the newest waiting; an answer that is no longer wanted
 * is dropped. A request that nobody answers does not block the next one for ever.
 * @template {{id: string}} Request
 */
export class Channel {
  /** @param {(request: Request) => void} send @param {() => number} now */
  constructor(send, now = () => Date.now()) {
    this.send = send;
    this.now = now;
    /** @type {{id: string, since: number} | null} */
    this.flying = null;
    /** @type {Request | null} */
    this.waiting = null;
  }
  /** @param {Request} request */
  ask(request) {
    if (this.flying && this.now() - this.flying.since < ANSWER_MS) {
      this.waiting = request;
      return;
    }
    this.flying = { id: request.id, since: this.now() };
    this.waiting = null;
    this.send(request);
  }
  /**
   * Whether this answer is the one to show.
   * @param {string} id
   */
  take(id) {
    if (!this.flying || this.flying.id !== id) return false;
    this.flying = null;
    if (!this.waiting) return true;
    this.ask(this.waiting);
    return false;
  }
}

// ---------------------------------------------------------------------------------- small DOM

/**
 * An element with a class, properties and children; texts are never markup.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag @param {string} name @param {Partial<HTMLElementTagNameMap[Tag]>} properties
 * @param {(Node | string | null)[]} children
 */
function make(tag, name, properties = {}, ...children) {
  const node = document.createElement(tag);
  if (name) node.className = name;
  Object.assign(node, properties);
  node.append(...children.filter((child) => child !== null));
  return node;
}

/** @param {(string | false)[]} names */
const classes = (...names) => names.filter(Boolean).join(" ");

/**
 * The pen of a canvas of this size, in units of the page's pixels.
 * @param {HTMLCanvasElement} canvas @param {number} width @param {number} height
 */
function context(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const pen = canvas.getContext("2d");
  if (!pen) throw new Error("kldive: this browser gives no canvas to draw the grid on");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  return pen;
}

/** @param {string} hex Such as #00224e. */
function rgb(hex) {
  return [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
}

// --------------------------------------------------------------------------------------- the view

export class Face {
  looking = make("span", "kld-looking");
  verdict = make("div", "kld-verdict");
  headline = make("div", "kld-headline");
  map = make("canvas", "kld-map", { title: "every token, worst level per column" });
  data = make("canvas", "kld-data", { ariaHidden: "true" });
  over = make("canvas", "kld-over", { ariaHidden: "true" });
  grid = make("div", "kld-grid", { tabIndex: 0, role: "grid" }, this.data, this.over);
  strip = make("div", "kld-strip");
  legend = make("div", "kld-legend");
  inspector = make("div", "kld-inspector");
  live = make("div", "kld-live", { role: "status", ariaLive: "polite" });
  overlay = make("div", "kld-overlay", { hidden: true });
  root = make("div", "kld");

  /** @param {Model} model @param {HTMLElement} host */
  constructor(model, host) {
    this.model = model;
    this.host = host;
    this.about = model.get("_about");
    this.name = Math.random().toString(36).slice(2, 8);
    this.count = 0;
    /** @type {TileCache<Tile>} */
    this.tiles = new TileCache();
    /** @type {Map<string, {id: string, since: number}>} */
    this.pending = new Map();
    const channel = () => new Channel((/** @type {{id: string, op: Asked}} */ request) =>
      model.send(request));
    /** @type {Channels} */
    this.channels = { cell: channel(), headings: channel(), menu: channel(), copy: channel(),
      choose: channel(), read: channel() };
    const nobody = () => {};
    /** @type {Waiters} */
    this.waiters = { cell: nobody, headings: nobody, menu: nobody, copy: nobody, choose: nobody,
      read: nobody };
    /** @type {Headings} */
    this.headings = { first: 0, texts: [], requests: [] };
    /** @type {Cell | null} */
    this.hover = null;
    /** @type {{from: Cell, to: Cell | null} | null} */
    this.drag = null;
    this.window = model.get("window");
    /** @type {Drawn | null} */
    this.drawn = null;
    /** @type {{bytes: DataView | null, band: number, ratio: number, image: ImageData} | null} */
    this.painted = null;
    // What stands in the widget already: the words, the cell in the inspector, the room told of.
    this.words = "";
    this.looked = "";
    this.room = "";
    this.columns = 0;
    this.width = 0;
    this.zoomed = 0;
    // Running timers, 0 for none.
    this.frame = 0;
    this.syncing = 0;
    this.later = 0;
    this.patience = 0;
    this.build();
    this.unlisten = this.listen();
  }

  get screen() {
    return this.model.get("_screen");
  }

  get size() {
    return { layers: this.about.layers, rows: this.about.rows };
  }

  build() {
    const { about } = this;
    const hint = hintOf(about.actions);
    const side = (/** @type {Side} */ { title, about: words }, /** @type {"a" | "b"} */ name) => [
      make("span", `kld-chip kld-${name}`, {}, title),
      make("span", "kld-dim", {}, words),
    ];
    this.grid.ariaRowCount = String(about.layers);
    this.grid.ariaColCount = String(about.rows);
    this.grid.ariaLabel = `divergence by layer and token; ${hint}`;
    this.root.dataset.lmSuppressShortcuts = "true";
    this.root.append(
      make("div", "kld-top", {},
        make("span", "kld-sides", {}, ...side(about.sides[0], "a"), ...side(about.sides[1], "b"),
          make("span", "kld-dim", {}, about.model),
          ...about.warnings.map((text) => make("span", "kld-chip kld-warning", {}, text))),
        this.looking),
      this.verdict, this.headline, this.map,
      make("div", "kld-body", {},
        make("div", "kld-left", {}, this.grid, this.strip, this.legend),
        this.inspector),
      make("div", "kld-hint", {}, hint), this.live, this.overlay);
    const { a, b, background, warning } = about.colors;
    for (const [name, value] of Object.entries({ a, b, ground: background, warning })) {
      this.root.style.setProperty(`--kld-${name}`, value);
    }
    // What stands in for this widget where no kernel runs is hidden while it lives.
    const saved = `.kld-saved-${about.name}`;
    const hide = [saved, `.jp-OutputArea-child:has(${saved})`].map((at) => `${at}{display:none}`);
    this.root.append(make("style", "", {}, hide.join("\n")));
    this.host.append(this.root);
  }

  /** Starts to follow the model, the page and the person; gives the way to stop. */
  listen() {
    const { model } = this;
    const changed = () => this.changed();
    for (const name of WATCHED) model.on(`change:${name}`, changed);
    /** @type {Hear} */
    const answered = (content, buffers) => this.answered(content, buffers);
    model.on("msg:custom", answered);
    const observer = new ResizeObserver(() => this.resized());
    observer.observe(this.root);
    const ratio = window.matchMedia(`(resolution: ${window.devicePixelRatio}dppx)`);
    const redraw = () => this.invalidate();
    ratio.addEventListener("change", redraw);
    this.root.addEventListener("keydown", (event) => this.key(event));
    this.grid.addEventListener("pointermove", (event) => this.moved(event));
    this.grid.addEventListener("pointerleave", () => this.left());
    this.grid.addEventListener("pointerdown", (event) => this.pressed(event));
    this.grid.addEventListener("pointerup", (event) => this.released(event));
    this.grid.addEventListener("wheel", (event) => this.wheeled(event), { passive: false });
    this.grid.addEventListener("focus", redraw);
    this.grid.addEventListener("blur", redraw);
    this.map.addEventListener("pointerdown", (event) => this.mapped(event));
    this.map.addEventListener("pointermove", (event) => event.buttons && this.mapped(event, true));
    return () => {
      for (const name of WATCHED) model.off(`change:${name}`, changed);
      model.off("msg:custom", answered);
      observer.disconnect();
      ratio.removeEventListener("change", redraw);
      cancelAnimationFrame(this.frame);
      for (const timer of [this.syncing, this.later, this.patience]) clearTimeout(timer);
      this.root.remove();
    };
  }

  // ------------------------------------------------------------------------------- messages

  id() {
    return `${this.name}:${++this.count}`;
  }

  /**
   * Asks for something of which only the newest answer counts.
   * @template {Asked} Op
   * @param {Op} op @param {Requests[Op]} request @param {(found: Answers[Op]) => void} then
   */
  ask(op, request, then) {
    const id = this.id();
    Object.assign(this.waiters, { [op]: then });
    this.channels[op].ask({ ...request, op, id });
  }

  /**
   * Sends what needs no answer of its own; gives the id by which one would come.
   * @template {keyof Requests} Op
   * @param {Op} op @param {Requests[Op]} request
   */
  tell(op, request) {
    const id = this.id();
    this.model.send({ ...request, op, id });
    return id;
  }

  /** @type {Hear} */
  answered(content, buffers) {
    if (typeof content?.id !== "string" || !content.id.startsWith(`${this.name}:`)) return;
    if ("cell" in content && content.cell) this.arrived(content.cell);
    if (content.op === "tile") this.tiled(content, buffers);
    else if (content.op !== "act" && content.op !== "room") this.handed(content.op, content);
    else if (content.error !== undefined) this.complain(content.error);
  }

  /**
   * Gives an answer to who asked for it, unless something newer is wanted by now.
   * @template {Asked} Op
   * @param {Op} op @param {Answers[Op]} content
   */
  handed(op, content) {
    if (this.channels[op]?.take(content.id)) this.waiters[op](content);
  }

  /** @param {string} message */
  complain(message) {
    this.headline.textContent = message;
    this.headline.className = "kld-headline kld-warning-text";
  }

  /** @param {Answers["tile"]} content @param {Bytes[]} buffers */
  tiled(content, buffers) {
    const wanted = [...this.pending].find(([, asked]) => asked.id === content.id)?.[0];
    if (wanted) this.pending.delete(wanted);
    const key = content.error === undefined
      ? TileCache.key(content.grid, content.level, content.l0, content.t0) : wanted;
    if (key) this.tiles.set(key, tileOf(content, buffers));
    this.invalidate();
  }

  /**
   * Tiles of the window, those on their way included; asks for what nobody asked for yet.
   * @param {Window} window @param {Screen} screen
   * @returns {TilePlace[]}
   */
  gathered(window, screen) {
    return tilesOf(window, screen.step).map(([layer, column]) => {
      const key = TileCache.key(screen.grid, screen.step, layer, column);
      const tile = this.tiles.get(key);
      const asked = this.pending.get(key);
      if (!tile && (!asked || Date.now() - asked.since > ANSWER_MS)) {
        const id = this.tell("tile", { lens: this.model.get("lens"), level: screen.step,
          l0: layer, l1: layer + TILE_LAYERS, t0: column, t1: column + TILE_COLUMNS });
        this.pending.set(key, { id, since: Date.now() });
      }
      return { layer, column, tile: tile ?? null };
    });
  }

  // -------------------------------------------------------------------------------- drawing

  changed() {
    if (!this.syncing) this.window = this.model.get("window");
    this.invalidate();
  }

  invalidate() {
    if (!this.frame) this.frame = requestAnimationFrame(() => this.draw());
  }

  resized() {
    const width = Math.floor(this.grid.clientWidth);
    if (!width || width === this.width) return;
    this.width = width;
    const room = roomOf(width, this.about.layers, this.about.character);
    if (JSON.stringify(room) !== this.room) {
      this.room = JSON.stringify(room);
      this.columns = room.columns;
      this.tell("room", room);
    }
    this.draw();
  }

  draw() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    this.drawWords();
    if (!this.width || !this.about.rows) return;
    this.drawMap();
    this.drawData();
    this.drawOver();
    this.look();
  }

  drawWords() {
    const { screen, about } = this;
    const key = JSON.stringify([screen, this.model.get("link")]);
    if (key === this.words) return;
    this.words = key;
    const chip = (/** @type {string} */ text, kind = "") =>
      make("span", classes("kld-chip", kind), {}, text);
    const link = this.model.get("link");
    this.looking.replaceChildren(
      make("span", "kld-dim", {}, "lens "), make("b", "", {}, screen.lens),
      make("span", "kld-dim", {}, ` · ${screen.tolerance} · `),
      make("b", "", {}, `${screen.class} `), screen.place,
      ...(screen.side === "diff" ? [] : [chip(`${screen.side.toUpperCase()} alone`,
        `kld-${screen.side}`)]),
      ...(screen.filter ? [chip(`shown: ${screen.filter}`, "kld-warning")] : []),
      ...(screen.find ? [chip(`find: ${screen.find}`)] : []),
      ...(link ? [chip(`linked by ${link}`)] : []),
    );
    this.verdict.textContent = screen.verdict.text;
    this.verdict.className = `kld-verdict kld-tone-${screen.verdict.tone}`;
    this.headline.textContent = screen.headline.text;
    this.headline.className = `kld-headline kld-tone-${screen.headline.tone}`;
    this.inspector.hidden = !screen.inspector;
    this.drawStrip(screen.strip);
    const absent = about.looks.length - screen.legend.length + 1;
    this.legend.replaceChildren(...screen.legend.map((text, place) => {
      const last = place === screen.legend.length - 1;
      const look = about.looks[last ? absent - 1 : absent + place];
      return make("span", "kld-entry", {}, this.level(look), ` ${text}`);
    }));
  }

  /** @param {Look} look */
  level(look) {
    const chip = make("span", "kld-level", {}, look.glyph);
    chip.style.background = look.fill;
    chip.style.color = look.text;
    return chip;
  }

  /** @param {Strip} strip */
  drawStrip(strip) {
    const row = this.model.get("cursor")[1];
    const tokens = strip.texts.map((text, i) => {
      const token = make("span", classes("kld-token", strip.first + i === row && "kld-here"),
        { title: `t${strip.first + i}` }, text === "" ? "␣" : text);
      const { fill } = this.about.looks[strip.codes[i]];
      if (fill !== this.about.colors.background) token.style.borderBottomColor = fill;
      token.onclick = () => this.go([this.model.get("cursor")[0], strip.first + i]);
      return token;
    });
    this.strip.replaceChildren(make("span", "kld-dim kld-request", {}, strip.request),
      strip.before ? "…" : "", ...tokens, strip.after ? "…" : "");
  }

  drawMap() {
    const bytes = this.model.get("_overview");
    const { layers, rows } = this.size;
    const width = Math.floor(this.verdict.clientWidth);
    const pen = context(this.map, width, OVERVIEW_HEIGHT + MARKS_HEIGHT);
    const { colors } = this.about;
    pen.fillStyle = colors.background;
    pen.fillRect(0, 0, width, OVERVIEW_HEIGHT + MARKS_HEIGHT);
    const band = width - GUTTER;
    const columns = bytesOf(bytes).length / layers || rows;
    const ratio = window.devicePixelRatio || 1;
    let { painted } = this;
    if (painted?.bytes !== bytes || painted.band !== band || painted.ratio !== ratio) {
      painted = { bytes, band, ratio, image: this.paintMap(bytesOf(bytes), band * ratio, ratio) };
      this.painted = painted;
    }
    pen.putImageData(painted.image, Math.round(GUTTER * ratio), 0);
    pen.font = this.font(11);
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    pen.fillStyle = colors.muted;
    pen.fillText("all", GUTTER - 8, 10);
    pen.fillText(shortCount(rows), GUTTER - 8, 25);
    this.drawMarks(pen, OVERVIEW_HEIGHT, (row) =>
      GUTTER + ((columnOf(row, rows, columns) + 0.5) * band) / columns);
  }

  /**
   * The overview in device pixels; where its bytes are missing, as a saved notebook may lose them,
   * nothing is said of any token.
   * @param {Uint8Array} all @param {number} width @param {number} ratio
   */
  paintMap(all, width, ratio) {
    const { layers } = this.size;
    const columns = layers ? all.length / layers : 0;
    // A dot has to be seen: what would be smaller is pooled first, then spread over the pixels.
    const least = LEAST_DOT * ratio;
    const [w, h] = [Math.max(1, Math.round(width)), Math.round(OVERVIEW_HEIGHT * ratio)];
    const [down, across] = [Math.min(layers, Math.floor(h / least)),
      Math.min(columns, Math.ceil(w / least))];
    const codes = poolGrid(poolGrid(all, layers, columns, down, across), down, across, h, w);
    const image = new ImageData(w, h);
    const pixels = new Uint32Array(image.data.buffer);
    const paint = this.about.looks.map((look) => new Uint32Array(
      Uint8ClampedArray.from([...rgb(look.fill), 255]).buffer)[0]);
    for (let i = 0; i < codes.length; i++) pixels[i] = paint[codes[i]];
    return image;
  }

  /** @param {Pen} pen @param {number} y @param {(row: number) => number} mapX */
  drawMarks(pen, y, mapX) {
    const { colors } = this.about;
    const { screen } = this;
    const [, , t0, t1] = this.window;
    pen.strokeStyle = colors.muted;
    pen.lineWidth = 1;
    const [left, right] = [mapX(t0), Math.max(mapX(t0) + 4, mapX(t1 - 1))];
    pen.strokeRect(Math.round(left) + 0.5, 0.5, Math.round(right - left), y);
    /** @type {(x: number, colour: string, base: number, tip: number) => void} */
    const triangle = (x, colour, base, tip) => {
      pen.fillStyle = colour;
      pen.beginPath();
      pen.moveTo(x - 4, base);
      pen.lineTo(x + 4, base);
      pen.lineTo(x, tip);
      pen.fill();
    };
    for (const [row] of screen.firsts) triangle(mapX(row), colors.first, y + 11, y + 4);
    pen.fillStyle = colors.text;
    for (const [, row] of screen.marks) pen.fillRect(mapX(row) - 1, y + 3, 2, 9);
    const pin = this.model.get("pin");
    if (pin) triangle(mapX(pin[1]), colors.pin, y + 11, y + 4);
    const x = Math.round(mapX(this.model.get("cursor")[1]));
    // The cursor ends below the cells: it must not hide the one it stands on.
    triangle(x, colors.accent, y + 10, y + 2);
    pen.fillStyle = colors.accent;
    pen.fillRect(x - 1, y + 1, 2, MARKS_HEIGHT - 1);
  }

  drawData() {
    const { screen, window } = this;
    const found = this.gathered(window, screen);
    const waits = found.some((part) => part.tile === null);
    const old = this.drawn?.width === this.width ? this.drawn : null;
    // Old pixels stay until the new ones are here; with none yet, the overview stands in.
    if (waits && old && Date.now() - old.at < ANSWER_MS / 4) {
      this.later ||= setTimeout(() => { this.later = 0; this.invalidate(); }, ANSWER_MS / 3);
      return;
    }
    /** @type {View} */
    const geometry = { window, step: screen.step, cellWidth: screen.cell * this.about.character,
      cellHeight: cellHeight(this.about.layers, screen.dense),
      perBand: Math.max(1, Math.floor(this.columns / screen.cell)) };
    const columns = columnsOf(geometry);
    const bands = Math.max(1, Math.ceil(columns / geometry.perBand));
    const height = bands * bandHeight(geometry) - BAND_GAP;
    const view = { ...geometry, width: this.width, height, text: screen.text, at: Date.now() };
    const pen = context(this.data, this.width, height);
    this.grid.style.height = `${height}px`;
    pen.fillStyle = this.about.colors.background;
    pen.fillRect(0, 0, this.width, height);
    this.drawn = view;
    const codeAt = this.coder(found, screen);
    this.fetchHeadings(view);
    for (let band = 0; band < bands; band++) {
      const first = band * view.perBand;
      const part = { y: band * bandHeight(view), first: (window[2] >> view.step) + first,
        columns: Math.min(view.perBand, columns - first) };
      this.drawLayers(pen, view, part);
      this.drawCells(pen, view, part, codeAt);
      this.drawRuler(pen, view, part);
    }
    const error = found.map((part) => part.tile?.error).find(Boolean);
    if (error) this.drawError(pen, error);
  }

  /**
   * Code by layer and column: from tiles, and where they are missing from the overview.
   * @param {TilePlace[]} found @param {Screen} screen
   * @returns {(layer: number, column: number) => number}
   */
  coder(found, screen) {
    const { layers, rows } = this.size;
    const overview = bytesOf(this.model.get("_overview"));
    const pooled = layers ? overview.length / layers : 0;
    /** @type {(place: TilePlace, layer: number, column: number) => boolean} */
    const holds = (place, layer, column) => layer >= place.layer && column >= place.column &&
      layer < place.layer + TILE_LAYERS && column < place.column + TILE_COLUMNS;
    /** @type {TilePlace | undefined} */
    let part = found[0];
    return (layer, column) => {
      if (!part || !holds(part, layer, column)) {
        part = found.find((place) => holds(place, layer, column));
      }
      if (part?.tile && !part.tile.error) {
        return part.tile.codes[(layer - part.layer) * part.tile.shape[1] + column - part.column];
      }
      return overview[layer * pooled + columnOf(column << screen.step, rows, pooled)] ?? UNKNOWN;
    };
  }

  /**
   * @param {Pen} pen @param {View} view @param {Band} part
   * @param {(layer: number, column: number) => number} codeAt
   */
  drawCells(pen, view, part, codeAt) {
    const { looks, colors } = this.about;
    const [l0, l1] = view.window;
    const glyphs = view.cellHeight >= 14;
    const gap = view.cellHeight > 6 ? 1 : 0;
    pen.font = this.font(11);
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    for (let layer = l0; layer < l1; layer++) {
      const y = part.y + RULER + (layer - l0) * view.cellHeight;
      for (let column = 0; column < part.columns; column++) {
        const look = looks[codeAt(layer, part.first + column)];
        const x = GUTTER + column * view.cellWidth;
        if (look.fill !== colors.background) {
          pen.fillStyle = look.fill;
          pen.fillRect(x, y, view.cellWidth - gap, view.cellHeight - gap);
        }
        if (glyphs && look.glyph !== " ") {
          pen.fillStyle = look.text;
          pen.fillText(look.glyph, x + view.cellWidth / 2, y + view.cellHeight / 2);
        }
      }
    }
  }

  /** @param {Pen} pen @param {View} view @param {Band} part */
  drawLayers(pen, view, part) {
    const [l0, l1] = view.window;
    pen.font = this.font(11);
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    pen.fillStyle = this.about.colors.muted;
    const every = Math.ceil(12 / view.cellHeight);
    for (let layer = l0; layer < l1; layer++) {
      if (layer % every) continue;
      const dense = this.about.kinds[layer] === "dense";
      const y = part.y + RULER + (layer - l0 + 0.5) * view.cellHeight;
      pen.fillText(`L${layer}${dense ? " d" : ""}`, GUTTER - 8, y);
    }
  }

  /**
   * Token texts with some to both sides, so that moving on does not wait for them.
   * @param {Drawn} view
   */
  fetchHeadings(view) {
    const { first, texts } = this.headings;
    const [, , t0, t1] = view.window;
    if (!view.text || (first <= t0 && first + texts.length >= t1)) return;
    const [from, to] = [Math.max(0, t0 - 200), Math.min(this.about.rows, t1 + 200)];
    this.ask("headings", { t0: from, t1: to }, (found) => {
      if (found.error !== undefined) return;
      this.headings = found;
      this.invalidate();
    });
  }

  /** @param {Pen} pen @param {Drawn} view @param {Band} part */
  drawRuler(pen, view, part) {
    const { colors } = this.about;
    const middle = part.y + RULER / 2;
    pen.font = this.font(11.5);
    pen.textBaseline = "middle";
    pen.textAlign = "left";
    pen.fillStyle = colors.muted;
    for (let column = 0; column < part.columns; column++) {
      const x = GUTTER + column * view.cellWidth;
      const row = (part.first + column) << view.step;
      if (!view.text) {
        if ((part.first + column) % TICK === 0) pen.fillText(`╵${row}`, x, middle);
        continue;
      }
      const text = this.headings.texts[row - this.headings.first];
      if (text === undefined) continue;
      const odd = this.headings.requests[row - this.headings.first];
      pen.fillStyle = odd ? colors.raised : colors.panel;
      pen.fillRect(x, part.y + 3, view.cellWidth, RULER - 6);
      pen.fillStyle = colors.text;
      pen.fillText(text, x + 3, middle);
    }
  }

  /** @param {Pen} pen @param {string} message */
  drawError(pen, message) {
    pen.fillStyle = this.about.colors.raised;
    pen.fillRect(GUTTER, RULER, this.width - GUTTER, 16 * (message.split("\n").length + 1));
    pen.fillStyle = this.about.colors.text;
    pen.textAlign = "left";
    message.split("\n").forEach((line, i) => pen.fillText(line, GUTTER + 8, RULER + 16 * (i + 1)));
  }

  drawOver() {
    const view = this.drawn;
    if (!view) return;
    const pen = context(this.over, this.width, view.height);
    pen.clearRect(0, 0, this.width, this.over.height);
    const { colors } = this.about;
    for (const rectangle of this.model.get("selection")) this.drawArea(pen, view, rectangle);
    if (this.drag?.to) this.drawArea(pen, view, rectangleOf(this.drag.from, this.drag.to, view.step));
    for (const mark of this.screen.marks) this.outline(pen, view, mark, colors.text, 1);
    const pin = this.model.get("pin");
    if (pin) this.outline(pen, view, pin, colors.pin, 2);
    if (this.hover) this.outline(pen, view, this.hover, colors.muted, 1);
    this.outline(pen, view, this.model.get("cursor"), colors.accent, 2, true);
  }

  /**
   * A frame round a cell; the cursor also has one round its heading and its layer's name.
   * @param {Pen} pen @param {View} view @param {Cell} cell @param {string} colour
   * @param {number} width
   */
  outline(pen, view, cell, colour, width, cursor = false) {
    const at = placeOf(view, cell);
    if (!at) return;
    const [x, y] = at;
    pen.strokeStyle = colour;
    pen.lineWidth = width;
    if (width > 1) {
      // A dark rim keeps the frame visible on the lightest level.
      pen.strokeStyle = this.about.colors.background;
      pen.lineWidth = width + 2;
      pen.strokeRect(x - 1, y - 1, view.cellWidth + 1, view.cellHeight + 1);
      pen.strokeStyle = colour;
      pen.lineWidth = width;
    }
    pen.strokeRect(x - 0.5, y - 0.5, view.cellWidth, view.cellHeight);
    if (!cursor) return;
    pen.fillStyle = colour;
    pen.fillRect(x, y - (cell[0] - view.window[0]) * view.cellHeight - 3, view.cellWidth, 2);
    pen.fillRect(GUTTER - 4, y, 2, view.cellHeight);
  }

  /**
   * A rectangle of cells, in one piece per band.
   * @param {Pen} pen @param {View} view @param {Window} rectangle
   */
  drawArea(pen, view, [l0, l1, t0, t1]) {
    const [w0, w1, s0, s1] = view.window;
    const [top, bottom] = [Math.max(l0, w0), Math.min(l1, w1)];
    const start = s0 >> view.step;
    const left = (Math.max(t0, s0) >> view.step) - start;
    const right = ((Math.min(t1, s1) - 1) >> view.step) - start + 1;
    if (top >= bottom || left >= right) return;
    pen.fillStyle = "rgba(255,255,255,0.12)";
    pen.strokeStyle = this.about.colors.text;
    pen.lineWidth = 1;
    pen.setLineDash([4, 3]);
    for (let from = left; from < right;) {
      const band = Math.floor(from / view.perBand);
      const to = Math.min(right, (band + 1) * view.perBand);
      const x = GUTTER + (from - band * view.perBand) * view.cellWidth;
      const y = band * bandHeight(view) + RULER + (top - w0) * view.cellHeight;
      const [w, h] = [(to - from) * view.cellWidth, (bottom - top) * view.cellHeight];
      pen.fillRect(x, y, w, h);
      pen.strokeRect(x - 0.5, y - 0.5, w, h);
      from = to;
    }
    pen.setLineDash([]);
  }

  /** @param {number} size In pixels. */
  font(size) {
    return `${size}px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace`;
  }

  // ------------------------------------------------------------------------------ inspector

  /** Shows the cell under the pointer, else the cursor's. */
  look() {
    const at = this.hover ?? this.model.get("cursor");
    const key = this.lookKey(at);
    if (key === this.looked) return;
    this.looked = key;
    this.patience ||= setTimeout(() => this.alone(), ANSWER_MS);
    this.ask("cell", { layer: at[0], token: at[1] }, (facts) => {
      // Meanwhile an action may have brought its own cell along: a late answer must not undo it.
      if (key !== this.looked) return;
      if (facts.error === undefined) this.inspect(facts);
      else this.inspector.replaceChildren(make("pre", "kld-error", {}, facts.error));
    });
  }

  /**
   * What came along with the answer to an action, so that nobody has to ask for it.
   * @param {Facts} facts
   */
  arrived(facts) {
    if (this.hover) return;
    this.looked = this.lookKey(facts.at);
    this.inspect(facts);
  }

  /** Said where a cell's numbers would be, when nobody has ever answered. */
  alone() {
    if (this.inspector.childElementCount) return;
    this.inspector.append(make("div", "kld-dim", {},
      "No kernel answers: shown is what was saved with the notebook. Run the cell to go on."));
  }

  /** @param {Cell} at */
  lookKey(at) {
    return JSON.stringify([at, this.screen.grid, this.screen.site, Boolean(this.hover)]);
  }

  /** @param {Facts} facts */
  inspect(facts) {
    if (!this.hover) this.live.textContent = spoken(facts.at, facts);
    const preview = this.hover ? "preview; a click keeps it" : "";
    this.inspector.replaceChildren(
      make("div", "kld-at", {}, make("b", "", {}, facts.address), ` ${facts.token}`,
        make("span", "kld-dim kld-preview", {}, preview)),
      make("div", "kld-dim", {}, facts.about),
      make("div", "kld-meaning", {}, this.level(this.about.looks[facts.code]), ` ${facts.meaning}`),
      ...facts.panels.map((panel) => this.panel(panel)),
      this.profile(facts.profile, facts.at[0]),
    );
  }

  /** @param {Panel} panel */
  panel(panel) {
    const sides = panel.sides.map((side) => (side ? `kld-of-${side.toLowerCase()}` : ""));
    const head = make("tr", "", {}, ...panel.head.map((title, i) =>
      make("th", sides[i], {}, title)));
    const rows = panel.rows.map((row) => {
      const cells = row.cells.map((text, i) => make("td", sides[i], {}, text));
      // Words in place of numbers take the room of all that are missing.
      const last = cells.at(-1);
      if (last) last.colSpan = Math.max(1, panel.head.length - cells.length + 1);
      if (row.mark === "A" || row.mark === "B") {
        cells[0].prepend(make("span", `kld-chip kld-${row.mark.toLowerCase()}`, {}, row.mark), " ");
      }
      return make("tr", classes(`kld-tone-${row.tone}`, row.mark && `kld-mark-${row.mark}`), {},
        ...cells);
    });
    return make("section", `kld-panel kld-panel-${panel.id}`, {},
      make("h4", "", {}, panel.title, ...this.sideChips(panel)),
      panel.head.length ? make("table", "", {}, make("tbody", "", {}, head, ...rows)) : null,
      ...panel.notes.map(([text, tone]) => make("div", `kld-note kld-tone-${tone}`, {}, text)));
  }

  /** @param {Panel} panel */
  sideChips(panel) {
    const chips = [make("span", "kld-chip kld-a", {}, "A rollout"),
      make("span", "kld-chip kld-b", {}, "B trainer")];
    return chips.filter((_, i) => panel.sides.includes(i ? "B" : "A"));
  }

  /** @param {Profile} profile @param {number} layer */
  profile(profile, layer) {
    const bars = profile.heights.map((height, i) => {
      const bar = make("span", classes("kld-bar", i === layer && "kld-here",
        height > 8 && "kld-broken", height < 0 && "kld-none"), { title: `L${i}` });
      bar.style.height = `${height < 0 ? 0 : Math.max(1, Math.min(height, 8) * 3)}px`;
      bar.onclick = () => this.go([i, (this.hover ?? this.model.get("cursor"))[1]]);
      return bar;
    });
    return make("section", "kld-panel", {},
      make("h4", "", {}, `rel L2 of ${profile.site} by layer`),
      make("div", "kld-bars", {}, ...bars),
      make("div", "kld-dim", {}, `L0 to L${profile.heights.length - 1}, from 1e-6 to 1, logarithmic`));
  }

  // ----------------------------------------------------------------------------- interaction

  /** @param {Cell} cell */
  go(cell) {
    this.hover = null;
    this.model.set("cursor", cell);
    this.model.save_changes();
  }

  /** @param {number} layers @param {number} columns */
  pan(layers, columns) {
    const next = panned(this.window, layers, columns, this.screen.step, this.size);
    if (next.every((value, i) => value === this.window[i])) return;
    this.window = next;
    this.invalidate();
    // The first of a burst goes at once, the rest at most thirty times a second.
    this.syncing ||= setTimeout(() => {
      this.syncing = 0;
      this.model.set("window", this.window);
      this.model.save_changes();
    }, 2 * SYNC_MS);
  }

  /** @param {PointerEvent} event */
  cellAt(event) {
    if (!this.drawn) return null;
    const box = this.grid.getBoundingClientRect();
    return hitTest(event.clientX - box.left, event.clientY - box.top, this.drawn);
  }

  /** @param {PointerEvent} event */
  moved(event) {
    const cell = this.cellAt(event);
    if (this.drag && cell) this.drag.to = cell;
    if (String(cell) === String(this.hover)) return;
    this.hover = cell;
    this.invalidate();
  }

  left() {
    this.hover = null;
    this.invalidate();
  }

  /** @param {PointerEvent} event */
  pressed(event) {
    if (event.button !== 0) return;
    this.grid.focus({ preventScroll: true });
    const cell = this.cellAt(event);
    if (!cell) return;
    this.drag = { from: cell, to: null };
    this.grid.setPointerCapture(event.pointerId);
  }

  /** @param {PointerEvent} event */
  released(event) {
    const { drag } = this;
    this.drag = null;
    if (!drag || !this.drawn) return;
    if (drag.to && String(drag.to) !== String(drag.from)) {
      const area = rectangleOf(drag.from, drag.to, this.drawn.step);
      const kept = event.shiftKey ? this.model.get("selection") : [];
      this.model.set("selection", [...kept, area]);
      this.model.save_changes();
      return;
    }
    if (this.model.get("selection").length) this.model.set("selection", []);
    this.go(drag.from);
  }

  /** @param {PointerEvent} event */
  mapped(event, dragging = false) {
    if (!this.painted) return;
    const { rows } = this.size;
    const x = event.clientX - this.map.getBoundingClientRect().left - GUTTER;
    const row = Math.max(0, Math.min(rows - 1, Math.floor((x / this.painted.band) * rows)));
    if (!dragging) {
      this.grid.focus({ preventScroll: true });
      this.go([this.model.get("cursor")[0], row]);
      return;
    }
    const [, , t0, t1] = this.window;
    const middle = t0 + (t1 - t0) / 2;
    this.pan(0, Math.round((row - middle) / 2 ** this.screen.step));
  }

  /** @param {WheelEvent} event */
  wheeled(event) {
    if (event.ctrlKey) {
      event.preventDefault();
      if (Math.abs(event.deltaY) > 2) this.zoom(event.deltaY);
      return;
    }
    const across = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
    const down = event.shiftKey ? 0 : event.deltaY;
    const [l0, l1] = this.window;
    const focused = this.grid.matches(":focus-within");
    if (Math.abs(across) > Math.abs(down)) {
      event.preventDefault();
      this.pan(0, Math.sign(across) * Math.max(1, Math.round(Math.abs(across) / 20)));
    } else if (focused && l1 - l0 < this.about.layers && down) {
      event.preventDefault();
      this.pan(Math.sign(down), 0);
    }
  }

  /** @param {number} direction */
  zoom(direction) {
    const now = Date.now();
    if (now - this.zoomed < 120) return;
    this.zoomed = now;
    this.tell("act", { action: direction > 0 ? "zoom.out" : "zoom.in" });
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (keepsKey(event)) event.stopPropagation();
    if (!this.overlay.hidden) {
      this.overlayKey(event);
      return;
    }
    if (event.target !== this.grid) return;
    const action = actionOf(this.about.actions, event);
    if (!action) return;
    event.preventDefault();
    event.stopPropagation();
    // Back goes one level: out of a search or a selection first, then to the notebook.
    const leaves = action.id === "back" && !this.screen.back;
    this.perform(action);
    if (leaves) this.leave();
  }

  /** @param {Action} action */
  perform(action) {
    // Who uses keys looks at the cursor, wherever the pointer happens to rest.
    this.hover = null;
    if (action.kind === "model") this.tell("act", { action: action.id });
    else if (action.kind === "help") this.help();
    else if (action.kind === "menu") this.menu(action);
    else if (action.kind === "prompt") this.prompt(action);
    else if (action.kind === "copy") this.copy(action);
    else if (action.kind === "read") this.read(action);
  }

  /** Gives the focus back to the notebook cell that holds the widget. */
  leave() {
    this.grid.blur();
    const notebook = this.host.closest(".jp-Notebook");
    if (notebook instanceof HTMLElement) notebook.focus({ preventScroll: true });
  }

  /** @param {Action} action */
  copy(action) {
    this.ask("copy", { action: action.id }, async (found) => {
      if (found.error !== undefined) return this.complain(found.error);
      try {
        await navigator.clipboard.writeText(found.text);
        this.live.textContent = "copied";
        this.headline.textContent = action.id === "copy.link"
          ? "copied: the Python and the command that show this again" : "copied: this cell as text";
      } catch {
        this.open("copy by hand", make("pre", "kld-copy", { tabIndex: 0 }, found.text));
      }
    });
  }

  // ------------------------------------------------------------------------------- overlays

  /** @param {string} title @param {(Node | string)[]} content */
  open(title, ...content) {
    this.overlay.replaceChildren(make("div", "kld-box", { role: "dialog", ariaLabel: title },
      make("h4", "", {}, title), ...content));
    this.overlay.hidden = false;
  }

  close() {
    this.overlay.hidden = true;
    this.overlay.replaceChildren();
    this.grid.focus({ preventScroll: true });
  }

  /** @param {KeyboardEvent} event */
  overlayKey(event) {
    const entries = [...this.overlay.querySelectorAll("button")].filter((each) => !each.disabled);
    const place = entries.findIndex((entry) => entry.matches(":focus"));
    const typing = event.target instanceof HTMLInputElement;
    /** @type {Record<string, number | undefined>} */
    const steps = { ArrowDown: 1, ArrowUp: -1, ...(typing ? {} : { j: 1, k: -1 }) };
    const step = steps[event.key];
    if (event.key === "Escape" || (!typing && event.key === "?")) {
      event.preventDefault();
      this.close();
    } else if (step && entries.length) {
      event.preventDefault();
      entries[steppedTo(place, step, entries.length)].focus();
    }
  }

  help() {
    /** @type {Map<string, HTMLTableRowElement[]>} */
    const groups = new Map();
    for (const action of this.about.actions) {
      const rows = groups.get(action.group) ?? [];
      groups.set(action.group, rows);
      rows.push(make("tr", "", {},
        make("td", "kld-keys", {}, ...action.names.flatMap((name) => [make("kbd", "", {}, name), " "])),
        make("td", "", {}, make("b", "", {}, action.title), make("div", "kld-dim", {}, action.help))));
    }
    const mouse = "Mouse: hover previews, a click keeps; drag selects, shift adds; wheel sideways " +
      "pans, with ctrl zooms; the strip on top jumps.";
    const parts = [...groups].map(([title, rows]) => make("section", "", {},
      make("h5", "", {}, title), make("table", "", {}, make("tbody", "", {}, ...rows))));
    const close = make("button", "kld-button", { onclick: () => this.close() }, "close (Esc)");
    this.open("Keys, while the grid has the focus", make("div", "kld-help", {}, ...parts),
      make("div", "kld-dim", {}, mouse), close);
    close.focus({ preventScroll: true });
  }

  /** @param {Action} action */
  read(action) {
    this.ask("read", { action: action.id }, (found) => {
      const text = found.error === undefined ? found.text : found.error;
      const page = make("pre", "kld-copy", { tabIndex: 0 }, text);
      this.open(action.title, page);
      page.focus({ preventScroll: true });
    });
  }

  /** @param {Action} action */
  menu(action) {
    this.ask("menu", { action: action.id }, (found) => {
      if (found.error !== undefined) return this.complain(found.error);
      const entries = found.entries.map(([value, title, number, about]) => make("button",
        classes("kld-choice", value === found.chosen && "kld-chosen"),
        { onclick: () => this.choose(action, value) },
        make("b", "", {}, title), make("span", "kld-number", {}, number),
        make("span", "kld-dim", {}, about)));
      this.open(found.title, ...entries);
      const widest = Math.max(8, ...found.entries.map(([, title]) => title.length));
      this.overlay.style.setProperty("--kld-title", `${widest + 3}ch`);
      (entries.find((entry) => entry.classList.contains("kld-chosen")) ?? entries[0])?.focus();
    });
  }

  /** @param {Action} action */
  prompt(action) {
    const input = make("input", "kld-input", { type: "text", ariaLabel: action.title });
    const problem = make("pre", "kld-error");
    input.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      this.choose(action, input.value, problem);
    });
    this.open(action.ask, input, problem);
    input.focus();
  }

  /**
   * @param {Action} action @param {string} value
   * @param {HTMLElement | null} problem Where to say what is wrong with it; null: in the headline.
   */
  choose(action, value, problem = null) {
    this.ask("choose", { action: action.id, value }, (found) => {
      if (found.error === undefined) this.close();
      else if (problem) problem.textContent = found.error;
      else {
        this.close();
        this.complain(found.error);
      }
    });
  }
}

/** @param {number} value */
function shortCount(value) {
  if (value < 10000) return value.toLocaleString("en");
  return value < 1e6 ? `${Math.round(value / 1e3)}k` : `${(value / 1e6).toFixed(1)}M`;
}

/** @param {{model: Model, el: HTMLElement}} context */
function render({ model, el }) {
  const face = new Face(model, el);
  return () => face.unlisten();
}

export default { render };
