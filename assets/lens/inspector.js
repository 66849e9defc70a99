// The window inspector: one cycle, in words and on the byte ruler.

import { button, download, el, fillSentence, svg } from "./dom.js";
import { CANDIDATE, candidateSheet, composeSvg, labelWidthOf, toPng, windowSheet } from "./figure.js";
import { asText, formatMs, listNames, verdictSentence } from "./sentences.js";
import { fromHex } from "./text.js";

/** @import { Run } from "./trace-model.js" */
/** @import { Board, CandidateRecord, ForkWish, Fusion, Part, Tok, Win } from "./types.d.ts" */

/**
 * @typedef {Object} Hooks
 * @property {(index: number) => void} onToken a draft position was pressed
 * @property {(wish: ForkWish) => void} onFork
 * @property {() => boolean} canFork
 * @property {(run: Run) => string} title
 * @property {(fusion: Fusion) => Promise<boolean>} complete fetches the candidates that are not here; whether they came
 */

/** @typedef {{run: Run, window: Win, index: number, token: Tok|null}} Shown */
/** @typedef {{window: Win, sheet: ReturnType<typeof windowSheet>, labelWidth: number, scale: number, fusion: Fusion|undefined, rows: number}} Drawn */

const FEW = 6;
const PADDING = 20; // left and right, see lens.css

/** Shows a window of a run and, where models were fused in it, the candidates. */
export class Inspector {
  /** @param {Hooks} hooks */
  constructor(hooks) {
    this.hooks = hooks;
    this.node = el("section", "inspector", "", { "aria-label": "Window inspector" });
    this.heading = el("h3", "inspector-title");
    this.times = el("span", "inspector-ms");
    this.sentence = el("p", "sentence", "", { "aria-live": "polite" });
    this.figure = el("div", "figure");
    this.fused = el("div", "fused");
    this.others = el("div");
    this.weighed = el("div");
    this.fused.append(this.others, this.weighed);
    const tools = el("span", "inspector-tools");
    this.note = el("span", "inspector-note", "", { role: "status" });
    tools.append(
      this.note,
      button("small", "SVG", "Save this window as an SVG drawing", () => this.#save("svg")),
      button("small", "PNG", "Save this window as a PNG picture", () => this.#save("png")),
    );
    const head = el("div", "inspector-head");
    head.append(this.heading, this.times, tools);
    this.empty = el("p", "empty", "Choose a token above to see its window.");
    const figures = el("div", "boards");
    figures.append(this.figure, this.fused);
    this.node.append(head, this.sentence, this.empty, figures);
    this.all = false;
    this.scale = 1;
    this.height = 0;
    /** Pixels a board can take; 0 when they must be asked for. */
    this.room = 0;
    /** @type {Shown|null} */
    this.shown = null;
    /** @type {Part[]} */
    this.parts = [];
    /** @type {Board[]} */
    this.boards = [];
    /** What is drawn of a run that is over, and so need not be drawn again to step within its window. @type {Drawn|null} */
    this.drawn = null;
    new ResizeObserver(() => this.#grow()).observe(this.node);
    this.clear();
  }

  /** Nothing chosen. */
  clear() {
    this.shown = null;
    this.shrink();
    this.heading.textContent = "Window";
    this.times.textContent = "";
    this.sentence.replaceChildren();
    this.figure.replaceChildren();
    this.others.replaceChildren();
    this.weighed.replaceChildren();
    this.drawn = null;
    this.empty.hidden = false;
  }

  /**
   * @param {Run} run @param {Win} window @param {number} index draft position
   * @param {Tok|null} token the committed one that stands there
   */
  show(run, window, index, token) {
    this.shown = { run, window, index, token };
    this.empty.hidden = true;
    const count = window.draft.length;
    const end = window.draft.reduce((far, t) => Math.max(far, t.start + t.hex.length / 2), window.start);
    this.heading.textContent = `${this.hooks.title(run)} \u00b7 window #${window.number} \u00b7 bytes ${window.start}\u2013${end} \u00b7 ${count} drafted`;
    this.times.textContent = this.#timesOf(window);
    this.parts = verdictSentence(run, window, index, token);
    fillSentence(this.sentence, this.parts);
    this.#draw(this.shown);
  }

  /** @param {Win} window */
  #timesOf(window) {
    return Object.entries(window.ms).filter(([, ms]) => ms > 0).map(([phase, ms]) => `${phase} ${formatMs(ms)}`).join(" \u00b7 ");
  }

  /** @param {Shown} shown */
  #draw(shown) {
    const { run, window, index } = shown;
    if (this.room === 0) this.room = this.node.clientWidth - PADDING; // asked once: every question would lay the page out
    const labelWidth = labelWidthOf(run, this.room < 540 ? 110 : 230);
    const scrolled = this.#overflows() && this.figure.firstChild instanceof Element ? this.figure.firstChild.scrollLeft : 0;
    const again = this.drawn?.window === window && this.drawn.labelWidth === labelWidth && this.drawn.scale === this.scale ? this.drawn : null;
    const sheet = again?.sheet ?? windowSheet(run, window, labelWidth, (at) => this.hooks.onToken(at));
    if (again === null) this.boards = [this.#place(this.figure, sheet, "Segmentations and checks of this window on the byte ruler")];
    sheet.mark(index);
    const weighed = this.#drawFusion(shown, labelWidth, again);
    this.drawn = run.end === null ? null : { window, sheet, labelWidth, scale: this.scale, ...weighed };
    this.#bringIntoView(scrolled);
  }

  /** The width changed. */
  resize() {
    this.room = 0;
  }

  /** Lets go of the height that it keeps so that nothing below it moves. */
  shrink() {
    this.height = 0;
    this.node.style.minHeight = "";
  }

  #grow() {
    if (this.shown === null || this.node.offsetHeight <= this.height) return;
    this.height = this.node.offsetHeight;
    this.node.style.minHeight = `${this.height}px`;
  }

  /** Whether the ruler is wider than its place. */
  #overflows() {
    const board = this.boards[0];
    return board !== undefined && (board.labelWidth + board.width) * this.scale > this.room;
  }

  /**
   * Puts a sheet on the page: names at the left stay in sight while the body scrolls.
   * @param {HTMLElement} host @param {ReturnType<typeof windowSheet>} sheet @param {string} words @returns {Board}
   */
  #place(host, sheet, words) {
    const scroller = el("div", "scroller", "", { tabindex: "0", role: "group", "aria-label": words });
    const parts = [{ group: sheet.names, width: sheet.labelWidth, cls: "names" }, { group: sheet.body, width: sheet.width, cls: "body" }];
    for (const { group, width, cls } of parts) {
      const frame = svg("svg", { class: cls, width: width * this.scale, height: sheet.y * this.scale, viewBox: `0 0 ${width} ${sheet.y}` });
      frame.append(group);
      scroller.append(frame);
    }
    host.replaceChildren(scroller);
    return { names: sheet.names, body: sheet.body, labelWidth: sheet.labelWidth, width: sheet.width, height: sheet.y };
  }

  /**
   * The fusion at the position, else the window's last; which one, and how many rows of it.
   * @param {Shown} shown @param {number} labelWidth @param {Drawn|null} again what may still be there
   * @returns {Pick<Drawn, "fusion"|"rows">}
   */
  #drawFusion(shown, labelWidth, again) {
    const { run, window, index } = shown;
    const at = window.fusions[index] !== undefined ? index : window.fusions.findLastIndex((f) => f !== undefined);
    const fusion = at < 0 ? undefined : window.fusions[at];
    const forks = this.hooks.canFork() && window.fusions[index] === undefined;
    this.others.replaceChildren(...(forks ? this.#alternatives(run, window, index) : []));
    const total = fusion === undefined ? 0 : fusion.of ?? fusion.candidates.length;
    const all = this.all && fusion?.of === undefined;
    const count = fusion === undefined ? 0 : all ? total : Math.min(FEW, fusion.candidates.length);
    const drawn = { fusion, rows: count };
    if (again !== null && again.fusion === fusion && again.rows === count && all === this.all) return drawn;
    this.weighed.replaceChildren();
    this.boards.length = 1;
    if (fusion === undefined) return drawn;
    const host = el("div", "candidates");
    const sheet = candidateSheet(run, fusion, count, labelWidth);
    this.boards.push(this.#place(host, sheet, "Candidates of the fusion"));
    if (this.hooks.canFork()) host.append(this.#forks(run, window, at, fusion.candidates.slice(0, count)));
    const where = this.hooks.title(run);
    const title = el("h4", "", `Fusion at position #${at} of ${window.draft.length}`);
    title.dataset.tip = `The strings ${where} weighed here, best first. ${fusion.smooth ? "No mean reached 0.5: the distribution was smooth." : ""}`;
    this.weighed.append(title, host);
    if (total > FEW) {
      const words = all ? `show the best ${FEW} only` : `show all ${total} candidates`;
      this.weighed.append(button("link", words, words, () => {
        this.all = !all;
        if (this.shown !== null) this.#again(this.shown); // the reader may have stepped on within the window
      }));
    }
    if (this.all && !all) this.#complete(shown, fusion);
    return drawn;
  }

  /** Draws anew where the height may change. @param {Shown} shown */
  #again(shown) {
    this.shrink();
    this.#draw(shown);
  }

  /** Gets the candidates of a live run that the page has not asked for yet. @param {Shown} shown @param {Fusion} fusion */
  async #complete(shown, fusion) {
    const came = await this.hooks.complete(fusion);
    if (this.shown !== shown) return;
    this.note.textContent = came ? "" : "The server no longer holds the other candidates. Save the trace or the offline page to see all of them.";
    if (came) this.#again(shown);
    else this.all = false;
  }

  /**
   * Where nothing was fused: what other models would have put here, as another way to go on.
   * @param {Run} run @param {Win} window @param {number} index @returns {HTMLElement[]}
   */
  #alternatives(run, window, index) {
    const drafted = window.draft[index];
    if (drafted === undefined) return [];
    /** @type {Map<string, {hex: string, eos: boolean, names: string[]}>} */
    const choices = new Map();
    for (const reading of window.readings) {
      const token = reading.tokens.find((t) => t.start === drafted.start && t.argmax_hex !== null && t.argmax_hex !== undefined);
      if (token === undefined || token.argmax_hex === null || (token.argmax_hex === drafted.hex && !token.argmax_eos)) continue;
      const choice = { hex: token.argmax_hex, eos: token.argmax_eos ?? false };
      const key = JSON.stringify(choice);
      choices.set(key, { ...choice, names: [...(choices.get(key)?.names ?? []), reading.model] });
    }
    return [...choices.values()].map(({ hex, eos, names }) => {
      const line = el("p", "other");
      const words = el("span");
      fillSentence(words, [`${listNames(names)} would have put `, eos ? { eos: true } : { quote: fromHex(hex) }, " here. "]);
      line.append(words, button("fork", "continue from here", "Start another run that takes this token here and goes on", () => {
        this.hooks.onFork({ run: run.key, window: window.number, index, hex, eos });
      }));
      return line;
    });
  }

  /** @param {Run} run @param {Win} window @param {number} index @param {CandidateRecord[]} candidates */
  #forks(run, window, index, candidates) {
    const column = el("div", "forks");
    const title = el("span", "", "fork");
    title.style.height = `${20 * this.scale}px`;
    column.append(title);
    for (const candidate of candidates) {
      const fork = button("fork", "↳", "Continue from here: start another run that takes this candidate here and goes on", () => {
        this.hooks.onFork({ run: run.key, window: window.number, index, hex: candidate.hex, eos: candidate.eos ?? false });
      });
      fork.style.height = `${CANDIDATE * this.scale}px`;
      column.append(fork);
    }
    return column;
  }

  /** Scrolls the ruler, not the page, to the chosen column. @param {number} scrolled pixels it was scrolled before */
  #bringIntoView(scrolled) {
    const column = this.figure.querySelector(".f-column");
    const scroller = this.figure.firstChild;
    if (column === null || !(scroller instanceof Element) || !this.#overflows()) return;
    const x = Number(column.getAttribute("x")) * this.scale;
    const width = Number(column.getAttribute("width")) * this.scale;
    const room = this.room - this.boards[0].labelWidth * this.scale;
    const inSight = x >= scrolled && x + width <= scrolled + room;
    const wanted = inSight ? scrolled : Math.max(0, x - room / 3);
    if (wanted > 0) scroller.scrollLeft = wanted;
  }

  /** The drawing as it is on the screen, standing alone. @returns {SVGElement|null} */
  drawing() {
    if (this.shown === null) return null;
    const style = getComputedStyle(this.node);
    const colours = { background: style.getPropertyValue("--sl-bg").trim(), ink: style.color };
    return composeSvg(this.heading.textContent ?? "", this.times.textContent ?? "", asText(this.parts), this.boards, colours);
  }

  /** @param {"svg"|"png"} kind */
  async #save(kind) {
    const drawing = this.drawing();
    if (drawing === null || this.shown === null) {
      this.note.textContent = "Choose a token first.";
      return;
    }
    this.note.textContent = "";
    const name = `${this.shown.run.key}-window-${this.shown.window.number}.${kind}`;
    if (kind === "svg") download(new Blob([new XMLSerializer().serializeToString(drawing)], { type: "image/svg+xml" }), name);
    else download(await toPng(drawing), name);
  }
}
