// The whole run at a glance: one lane per kind of token, a cursor, and where the runs part. Click to go there.

import { el } from "./dom.js";

/** @import { Run } from "./trace-model.js" */
/** @import { Tok } from "./types.d.ts" */

/** @type {Array<{colour: string, has: (token: Tok) => boolean}>} */
const LANES = [
  { colour: "--sl-broken", has: (token) => token.broken },
  { colour: "--sl-oov", has: (token) => token.state === "oov" },
  { colour: "--sl-kept", has: (token) => token.state === "kept" },
  { colour: "--sl-replaced", has: (token) => token.state === "replaced" },
];
const TALL = 7;
const HEIGHT = LANES.length * TALL + 6;

/** Ticks on a canvas, drawn when tokens come; marks that move with every step lie over it. */
export class Minimap {
  /** @param {(i: number) => void} go called with the token that was pressed */
  constructor(go) {
    this.node = el("div", "minimap");
    this.node.dataset.tip = "The whole response, left to right. Lanes from top to bottom: asked on a broken prefix, not safe, fused and kept, replaced. Press to go there.";
    this.canvas = el("canvas", "", "", { role: "img" });
    this.cursor = el("span", "map-cursor");
    this.parting = el("span", "map-parting");
    this.node.append(this.canvas, this.parting, this.cursor);
    /** @type {Run|null} */
    this.run = null;
    this.selected = this.divergence = -1;
    this.pending = false;
    this.node.addEventListener("pointerdown", (event) => {
      if (this.run === null || this.run.tokens.length === 0) return;
      const frame = this.canvas.getBoundingClientRect();
      const share = (event.clientX - frame.left) / frame.width;
      go(Math.min(this.run.tokens.length - 1, Math.max(0, Math.floor(share * this.run.tokens.length))));
    });
    new ResizeObserver(() => this.update()).observe(this.node);
    this.mark();
  }

  /** Moves the marks. @param {number} [selected] @param {number} [divergence] tokens, -1 for none */
  mark(selected = this.selected, divergence = this.divergence) {
    this.selected = selected;
    this.divergence = divergence;
    const total = this.run === null ? 0 : this.run.tokens.length;
    for (const { node, i } of [{ node: this.cursor, i: selected }, { node: this.parting, i: divergence }]) {
      node.hidden = i < 0 || total === 0;
      if (total > 0) node.style.left = `${(100 * (i + 0.5)) / total}%`;
    }
  }

  /** Draws with the next frame. */
  update() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      this.#draw();
      this.mark();
    });
  }

  #draw() {
    const width = this.node.clientWidth;
    if (width === 0) return;
    const scale = window.devicePixelRatio || 1;
    this.canvas.width = width * scale;
    this.canvas.height = HEIGHT * scale;
    const pen = this.canvas.getContext("2d");
    if (pen === null) return;
    pen.scale(scale, scale);
    const style = getComputedStyle(this.node);
    const colour = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
    pen.fillStyle = colour("--sl-lane");
    LANES.forEach((_, lane) => pen.fillRect(0, 3 + lane * TALL, width, TALL - 2));
    if (this.run === null || this.run.tokens.length === 0) return;
    const tokens = this.run.tokens;
    const step = width / tokens.length;
    const tick = Math.max(2, Math.min(step - 0.5, 12));
    LANES.forEach((lane, row) => {
      pen.fillStyle = colour(lane.colour);
      for (const token of tokens) if (lane.has(token)) pen.fillRect(token.i * step, 3 + row * TALL, tick, TALL - 2);
    });
    const { counts } = this.run;
    this.canvas.setAttribute("aria-label", `${tokens.length} tokens: ${counts.oov} not safe, ${counts.kept} fused and kept, ${counts.replaced} replaced, ${counts.broken} asked on a broken prefix.`);
  }
}
