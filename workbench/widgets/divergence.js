/**
 * The notebook face of kldive's stepper: overview, grid, inspector and keys over a view-model that
 * lives in Python. Draws what it is told; what an action does is decided there. No imports, no
 * network, no state of its own but pixels. Grids are uint8 codes, row by row; `looks` give a code's
 * colour and glyph. Axes: layer down, token across; a column is 2 ** step tokens.
 */

/** @typedef {[number, number, number, number]} Window First layer, stop, first token, stop. */
/** @typedef {{fill: string, text: string, glyph: string}} Look */
/** @typedef {{window: Window, step: number, cellWidth: number, cellHeight: number,
 *   perBand: number}} View Tokens beyond `perBand` columns go on in the next band, below. */
/** @typedef {{id: string, keys: string[], names: string[], title: string, help: string,
 *   group: string, kind: string, ask: string}} Action */

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

/** Where each of `to` parts of `from` cells starts, and where the last one ends. */
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
 */
export function roomOf(width, layers, character) {
  const fit = (dense) => Math.max(1, Math.floor(MAX_GRID / cellHeight(layers, dense)));
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
 * @param {View} view @param {[number, number]} cell Layer and token.
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
 * @returns {[number, number] | null} Layer and token.
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
 * @param {Action[]} actions
 * @param {{key: string, ctrlKey?: boolean, metaKey?: boolean, altKey?: boolean}} event
 * @returns {Action | null}
 */
export function actionOf(actions, event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return null;
  return actions.find((action) => action.keys.includes(event.key)) ?? null;
}

/**
 * The few keys to start with, as they are bound; what has no key is left out.
 * @param {Action[]} actions
 */
export function hintOf(actions) {
  const key = (id) => actions.find((action) => action.id === id)?.names[0];
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
 * @param {{key: string, ctrlKey?: boolean, metaKey?: boolean, altKey?: boolean,
 *   shiftKey?: boolean}} event
 */
export function keepsKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return false;
  if (event.key === "Tab" || (event.key === "Enter" && event.shiftKey)) return false;
  return true;
}

/**
 * The tiles that a window needs, by layer and column where they start.
 * @param {Window} window @param {number} step @returns {[number, number][]}
 */
export function tilesOf(window, step) {
  const [l0, l1, t0, t1] = window;
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
 * @param {[number, number]} a @param {[number, number]} b @param {number} step
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
 * @param {[number, number]} at @param {{token?: string, meaning?: string}} facts
 */
export function spoken(at, facts) {
  const words = [`layer ${at[0]} token ${at[1]}`, facts.token, facts.meaning];
  return words.filter(Boolean).join(", ");
}

/** The latest few tiles; the one that was used longest ago goes first. */
export class TileCache {
  /** @param {number} kept */
  constructor(kept = 64) {
    this.kept = kept;
    /** @type {Map<string, {codes: Uint8Array, shape: [number, number], error?: string}>} */
    this.tiles = new Map();
  }
  static key(grid, level, layer, column) {
    return `${grid}#${level}#${layer}#${column}`;
  }
  get(key) {
    const found = this.tiles.get(key);
    if (found) {
      this.tiles.delete(key);
      this.tiles.set(key, found);
    }
    return found;
  }
  set(key, tile) {
    this.tiles.delete(key);
    this.tiles.set(key, tile);
    while (this.tiles.size > this.kept) this.tiles.delete(this.tiles.keys().next().value);
  }
}

/**
 * One kind of request: one in flight, only the newest waiting; an answer that is no longer wanted
 * is dropped. A request that nobody answers does not block the next one for ever.
 */
export class Channel {
  /** @param {(request: object) => void} send @param {() => number} now */
  constructor(send, now = () => Date.now()) {
    this.send = send;
    this.now = now;
    this.flying = null;
    this.waiting = null;
  }
  ask(request) {
    if (this.flying && this.now() - this.flying.since < ANSWER_MS) {
      this.waiting = request;
      return;
    }
    this.flying = { id: request.id, since: this.now() };
    this.waiting = null;
    this.send(request);
  }
  /** Whether this answer is the one to show. */
  take(id) {
    if (!this.flying || this.flying.id !== id) return false;
    this.flying = null;
    if (!this.waiting) return true;
    this.ask(this.waiting);
    return false;
  }
}

// ---------------------------------------------------------------------------------- small DOM

/** An element with a class, properties and children; texts are never markup. */
function make(tag, name, properties = {}, ...children) {
  const node = document.createElement(tag);
  if (name) node.className = name;
  for (const [key, value] of Object.entries(properties)) {
    if (key in node) node[key] = value;
    else node.setAttribute(key, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

const classes = (...names) => names.filter(Boolean).join(" ");

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
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  return pen;
}

function rgb(hex) {
  return [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
}

// --------------------------------------------------------------------------------------- the view

export class Face {
  constructor(model, host) {
    this.model = model;
    this.host = host;
    this.about = model.get("_about");
    this.name = Math.random().toString(36).slice(2, 8);
    this.count = 0;
    this.tiles = new TileCache();
    /** @type {Map<string, {id: string, since: number}>} */
    this.pending = new Map();
    this.channels = {};
    for (const op of ["cell", "headings", "menu", "copy", "choose", "read"]) {
      this.channels[op] = new Channel((request) => model.send(request));
    }
    this.waiters = new Map();
    this.headings = { first: 0, texts: [], requests: [] };
    this.hover = null;
    this.drag = null;
    this.window = model.get("window");
    this.drawn = null;
    this.width = 0;
    this.frame = 0;
    this.syncing = 0;
    this.build();
    this.listen();
  }

  get screen() {
    return this.model.get("_screen");
  }

  get size() {
    return { layers: this.about.layers, rows: this.about.rows };
  }

  build() {
    const { about } = this;
    const side = (index, name) => [
      make("span", `kld-chip kld-${name}`, {}, about.sides[index].title),
      make("span", "kld-dim", {}, about.sides[index].about),
    ];
    this.looking = make("span", "kld-looking");
    this.verdict = make("div", "kld-verdict");
    this.headline = make("div", "kld-headline");
    this.map = make("canvas", "kld-map", { title: "every token, worst level per column" });
    this.data = make("canvas", "kld-data", { ariaHidden: "true" });
    this.over = make("canvas", "kld-over", { ariaHidden: "true" });
    this.grid = make("div", "kld-grid", {
      tabIndex: 0,
      role: "grid",
      ariaRowCount: String(about.layers),
      ariaColCount: String(about.rows),
      ariaLabel: `divergence by layer and token; ${hintOf(about.actions)}`,
    }, this.data, this.over);
    this.strip = make("div", "kld-strip");
    this.legend = make("div", "kld-legend");
    this.inspector = make("div", "kld-inspector");
    this.live = make("div", "kld-live", { role: "status", ariaLive: "polite" });
    this.overlay = make("div", "kld-overlay", { hidden: true });
    this.hint = make("div", "kld-hint", {}, hintOf(about.actions));
    this.root = make("div", "kld", { "data-lm-suppress-shortcuts": "true" },
      make("div", "kld-top", {},
        make("span", "kld-sides", {}, ...side(0, "a"), ...side(1, "b"),
          make("span", "kld-dim", {}, about.model),
          ...about.warnings.map((text) => make("span", "kld-chip kld-warning", {}, text))),
        this.looking),
      this.verdict, this.headline, this.map,
      make("div", "kld-body", {},
        make("div", "kld-left", {}, this.grid, this.strip, this.legend),
        this.inspector),
      this.hint, this.live, this.overlay);
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

  listen() {
    const { model } = this;
    const changed = () => this.changed();
    const names = ["_screen", "_overview", "cursor", "pin", "selection", "window", "link"];
    for (const name of names) model.on(`change:${name}`, changed);
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
    this.grid.addEventListener("focus", () => this.invalidate());
    this.grid.addEventListener("blur", () => this.invalidate());
    this.map.addEventListener("pointerdown", (event) => this.mapped(event));
    this.map.addEventListener("pointermove", (event) => event.buttons && this.mapped(event, true));
    this.unlisten = () => {
      for (const name of names) model.off(`change:${name}`, changed);
      model.off("msg:custom", answered);
      observer.disconnect();
      ratio.removeEventListener("change", redraw);
      cancelAnimationFrame(this.frame);
      clearTimeout(this.syncing);
      clearTimeout(this.later);
      clearTimeout(this.patience);
      this.root.remove();
    };
  }

  // ------------------------------------------------------------------------------- messages

  id() {
    return `${this.name}:${++this.count}`;
  }

  /** Asks for something of which only the newest answer counts. */
  ask(op, request, then) {
    const id = this.id();
    this.waiters.set(op, then);
    this.channels[op].ask({ ...request, op, id });
  }

  tell(op, request) {
    this.model.send({ ...request, op, id: this.id() });
  }

  answered(content, buffers) {
    if (typeof content?.id !== "string" || !content.id.startsWith(`${this.name}:`)) return;
    if (content.cell) this.arrived(content.cell);
    if (content.op === "tile") this.tiled(content, buffers);
    else if (content.op in this.channels) {
      if (this.channels[content.op].take(content.id)) this.waiters.get(content.op)?.(content);
    } else if (content.error) this.complain(content.error);
  }

  complain(message) {
    this.headline.textContent = message;
    this.headline.className = "kld-headline kld-warning-text";
  }

  tiled(content, buffers) {
    const wanted = [...this.pending].find(([, asked]) => asked.id === content.id)?.[0];
    if (wanted) this.pending.delete(wanted);
    if (content.error) {
      if (wanted) this.tiles.set(wanted, { codes: new Uint8Array(0), shape: [0, 0],
        error: content.error });
    } else {
      const view = buffers[0];
      const codes = new Uint8Array(view.buffer ?? view, view.byteOffset ?? 0, view.byteLength);
      const key = TileCache.key(content.grid, content.level, content.l0, content.t0);
      this.tiles.set(key, { codes: codes.slice(), shape: content.shape });
    }
    this.invalidate();
  }

  /** Tiles of the window that are here; null for one that is on its way. */
  gathered(window, screen) {
    return tilesOf(window, screen.step).map(([layer, column]) => {
      const key = TileCache.key(screen.grid, screen.step, layer, column);
      const tile = this.tiles.get(key);
      const asked = this.pending.get(key);
      if (!tile && (!asked || Date.now() - asked.since > ANSWER_MS)) {
        const id = this.id();
        this.pending.set(key, { id, since: Date.now() });
        this.model.send({ id, op: "tile", lens: this.model.get("lens"), level: screen.step,
          l0: layer, l1: layer + TILE_LAYERS, t0: column, t1: column + TILE_COLUMNS });
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
    if (!this.width || !this.about.rows) {
      this.drawWords();
      return;
    }
    this.drawWords();
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
    const chip = (text, kind = "") => make("span", classes("kld-chip", kind), {}, text);
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

  level(look) {
    const chip = make("span", "kld-level", {}, look.glyph);
    chip.style.background = look.fill;
    chip.style.color = look.text;
    return chip;
  }

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
    const columns = layers ? bytes.byteLength / layers : 0;
    const ratio = window.devicePixelRatio || 1;
    if (this.painted?.bytes !== bytes || this.painted.band !== band
      || this.painted.ratio !== ratio) {
      this.painted = { bytes, band, ratio, image: this.paintMap(bytes, band * ratio, ratio) };
    }
    pen.putImageData(this.painted.image, Math.round(GUTTER * ratio), 0);
    pen.font = this.font(11);
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    pen.fillStyle = colors.muted;
    pen.fillText("all", GUTTER - 8, 10);
    pen.fillText(shortCount(rows), GUTTER - 8, 25);
    this.mapX = (row) => GUTTER + ((columnOf(row, rows, columns) + 0.5) * band) / columns;
    this.mapRow = (x) => Math.max(0, Math.min(rows - 1, Math.floor(((x - GUTTER) / band) * rows)));
    this.drawMarks(pen, OVERVIEW_HEIGHT);
  }

  /** The overview in device pixels. */
  paintMap(bytes, width, ratio) {
    const { layers } = this.size;
    const columns = bytes.byteLength / layers;
    const all = new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength);
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

  drawMarks(pen, y) {
    const { colors } = this.about;
    const { screen } = this;
    const [, , t0, t1] = this.window;
    pen.strokeStyle = colors.muted;
    pen.lineWidth = 1;
    const [left, right] = [this.mapX(t0), Math.max(this.mapX(t0) + 4, this.mapX(t1 - 1))];
    pen.strokeRect(Math.round(left) + 0.5, 0.5, Math.round(right - left), y);
    const triangle = (x, colour, base, tip) => {
      pen.fillStyle = colour;
      pen.beginPath();
      pen.moveTo(x - 4, base);
      pen.lineTo(x + 4, base);
      pen.lineTo(x, tip);
      pen.fill();
    };
    for (const [row] of screen.firsts) triangle(this.mapX(row), colors.first, y + 11, y + 4);
    pen.fillStyle = colors.text;
    for (const [, row] of screen.marks) pen.fillRect(this.mapX(row) - 1, y + 3, 2, 9);
    const pin = this.model.get("pin");
    if (pin) triangle(this.mapX(pin[1]), colors.pin, y + 11, y + 4);
    const x = Math.round(this.mapX(this.model.get("cursor")[1]));
    // The cursor ends below the cells: it must not hide the one it stands on.
    triangle(x, colors.accent, y + 10, y + 2);
    pen.fillStyle = colors.accent;
    pen.fillRect(x - 1, y + 1, 2, MARKS_HEIGHT - 1);
  }

  drawData() {
    const { screen, window } = this;
    const found = this.gathered(window, screen);
    const waits = found.some((part) => part.tile === null);
    const fresh = !this.drawn || this.drawn.width !== this.width;
    // Old pixels stay until the new ones are here; with none yet, the overview stands in.
    if (waits && !fresh && Date.now() - this.drawn.at < ANSWER_MS / 4) {
      this.later ??= setTimeout(() => { this.later = null; this.invalidate(); }, ANSWER_MS / 3);
      return;
    }
    const height = cellHeight(this.about.layers, screen.dense);
    const view = { window, step: screen.step, cellWidth: screen.cell * this.about.character,
      cellHeight: height, width: this.width, text: screen.text, at: Date.now(),
      perBand: Math.max(1, Math.floor(this.columns / screen.cell)) };
    const columns = columnsOf(view);
    const bands = Math.max(1, Math.ceil(columns / view.perBand));
    const canvasHeight = bands * bandHeight(view) - BAND_GAP;
    const pen = context(this.data, this.width, canvasHeight);
    this.grid.style.height = `${canvasHeight}px`;
    pen.fillStyle = this.about.colors.background;
    pen.fillRect(0, 0, this.width, canvasHeight);
    view.height = canvasHeight;
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
    const failed = found.find((part) => part.tile?.error);
    if (failed) this.drawError(pen, failed.tile.error);
  }

  /** Code by layer and column: from tiles, and where they are missing from the overview. */
  coder(found, screen) {
    const bytes = this.model.get("_overview");
    const pooled = this.about.layers ? bytes.byteLength / this.about.layers : 0;
    let part = found[0];
    const holds = (p, layer, column) => layer >= p.layer && layer < p.layer + TILE_LAYERS &&
      column >= p.column && column < p.column + TILE_COLUMNS;
    return (layer, column) => {
      if (!holds(part, layer, column)) part = found.find((p) => holds(p, layer, column));
      if (part.tile && !part.tile.error) {
        return part.tile.codes[(layer - part.layer) * part.tile.shape[1] + column - part.column];
      }
      return bytes.getUint8(layer * pooled + columnOf(column << screen.step, this.about.rows, pooled));
    };
  }

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

  /** Token texts with some to both sides, so that moving on does not wait for them. */
  fetchHeadings(view) {
    const { first, texts } = this.headings;
    const [, , t0, t1] = view.window;
    if (!view.text || (first <= t0 && first + texts.length >= t1)) return;
    const [from, to] = [Math.max(0, t0 - 200), Math.min(this.about.rows, t1 + 200)];
    this.ask("headings", { t0: from, t1: to }, (found) => {
      if (found.error) return;
      this.headings = found;
      this.invalidate();
    });
  }

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

  /** A frame round a cell; the cursor also has one round its heading and its layer's name. */
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

  /** A rectangle of cells, in one piece per band. */
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
    this.patience ??= setTimeout(() => this.alone(), ANSWER_MS);
    this.ask("cell", { layer: at[0], token: at[1] }, (facts) => {
      // Meanwhile an action may have brought its own cell along: a late answer must not undo it.
      if (key !== this.looked) return;
      if (!facts.error) this.inspect(facts);
      else this.inspector.replaceChildren(make("pre", "kld-error", {}, facts.error));
    });
  }

  /** What came along with the answer to an action, so that nobody has to ask for it. */
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

  lookKey(at) {
    return JSON.stringify([at, this.screen.grid, this.screen.site, Boolean(this.hover)]);
  }

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

  panel(panel) {
    const head = make("tr", "", {}, ...panel.head.map((title, i) =>
      make("th", panel.sides[i] ? `kld-of-${panel.sides[i].toLowerCase()}` : "", {}, title)));
    const rows = panel.rows.map((row) => {
      const cells = row.cells.map((text, i) => make("td",
        panel.sides[i] ? `kld-of-${panel.sides[i].toLowerCase()}` : "", {}, text));
      if (cells.length < panel.head.length) cells.at(-1).colSpan = panel.head.length - 1;
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

  sideChips(panel) {
    const found = ["A", "B"].filter((side) => panel.sides.includes(side));
    return found.map((side) => make("span", `kld-chip kld-${side.toLowerCase()}`, {},
      side === "A" ? "A rollout" : "B trainer"));
  }

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

  go(cell) {
    this.hover = null;
    this.model.set("cursor", cell);
    this.model.save_changes();
  }

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

  cellAt(event) {
    if (!this.drawn) return null;
    const box = this.grid.getBoundingClientRect();
    return hitTest(event.clientX - box.left, event.clientY - box.top, this.drawn);
  }

  moved(event) {
    const cell = this.cellAt(event);
    if (this.drag && cell) {
      this.drag.to = cell;
    }
    if (String(cell) === String(this.hover)) return;
    this.hover = cell;
    this.invalidate();
  }

  left() {
    this.hover = null;
    this.invalidate();
  }

  pressed(event) {
    if (event.button !== 0) return;
    this.grid.focus({ preventScroll: true });
    const cell = this.cellAt(event);
    if (!cell) return;
    this.drag = { from: cell, to: null };
    this.grid.setPointerCapture(event.pointerId);
  }

  released(event) {
    const { drag } = this;
    this.drag = null;
    if (!drag) return;
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

  mapped(event, dragging = false) {
    if (!this.mapRow) return;
    const row = this.mapRow(event.clientX - this.map.getBoundingClientRect().left);
    if (!dragging) {
      this.grid.focus({ preventScroll: true });
      this.go([this.model.get("cursor")[0], row]);
      return;
    }
    const [, , t0, t1] = this.window;
    const middle = t0 + (t1 - t0) / 2;
    this.pan(0, Math.round((row - middle) / 2 ** this.screen.step));
  }

  wheeled(event) {
    if (event.ctrlKey) {
      event.preventDefault();
      if (Math.abs(event.deltaY) > 2) this.zoom(event.deltaY);
      return;
    }
    const across = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
    const down = event.shiftKey ? 0 : event.deltaY;
    const [l0, l1] = this.window;
    const focused = this.grid.contains(document.activeElement);
    if (Math.abs(across) > Math.abs(down)) {
      event.preventDefault();
      this.pan(0, Math.sign(across) * Math.max(1, Math.round(Math.abs(across) / 20)));
    } else if (focused && l1 - l0 < this.about.layers && down) {
      event.preventDefault();
      this.pan(Math.sign(down), 0);
    }
  }

  zoom(direction) {
    const now = Date.now();
    if (now - (this.zoomed ?? 0) < 120) return;
    this.zoomed = now;
    this.tell("act", { action: direction > 0 ? "zoom.out" : "zoom.in" });
  }

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
    const cell = this.host.closest?.(".jp-Notebook");
    if (cell instanceof HTMLElement) cell.focus({ preventScroll: true });
  }

  copy(action) {
    this.ask("copy", { action: action.id }, async (found) => {
      if (found.error) return this.complain(found.error);
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

  overlayKey(event) {
    const entries = [...this.overlay.querySelectorAll("button:not(:disabled)")];
    const place = entries.indexOf(document.activeElement);
    const typing = event.target instanceof HTMLInputElement;
    const step = { ArrowDown: 1, ArrowUp: -1, ...(typing ? {} : { j: 1, k: -1 }) }[event.key];
    if (event.key === "Escape" || (!typing && event.key === "?")) {
      event.preventDefault();
      this.close();
    } else if (step && entries.length) {
      event.preventDefault();
      entries[(place + step + entries.length) % entries.length].focus();
    }
  }

  help() {
    const groups = new Map();
    for (const action of this.about.actions) {
      if (!groups.has(action.group)) groups.set(action.group, []);
      groups.get(action.group).push(make("tr", "", {},
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

  read(action) {
    this.ask("read", { action: action.id }, (found) => {
      this.open(action.title, make("pre", "kld-copy", { tabIndex: 0 }, found.error ?? found.text));
      this.overlay.querySelector("pre").focus({ preventScroll: true });
    });
  }

  menu(action) {
    this.ask("menu", { action: action.id }, (found) => {
      if (found.error) return this.complain(found.error);
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

  choose(action, value, problem = null) {
    this.ask("choose", { action: action.id, value }, (found) => {
      if (!found.error) this.close();
      else if (problem) problem.textContent = found.error;
      else {
        this.close();
        this.complain(found.error);
      }
    });
  }
}

function shortCount(value) {
  if (value < 10000) return value.toLocaleString("en");
  return value < 1e6 ? `${Math.round(value / 1e3)}k` : `${(value / 1e6).toFixed(1)}M`;
}

/** @param {{model: any, el: HTMLElement}} context */
function render({ model, el }) {
  const face = new Face(model, el);
  return () => face.unlisten();
}

export default { render };
