// The response strip: every token a chip. Chips stand in blocks of whole lines; the browser skips blocks that are out of
// sight, so thousands of tokens stay quick while search, selection and screen readers still see all of them. A long run that
// is opened at once is drawn in slices, a frame each, so that its beginning, the first slice, is there at once.

import { cellNodes, el } from "./dom.js";
import { ariaLabel } from "./sentences.js";
import { breaksLine, byteLength, clusters, exactText, fromHex, wholeCharacters } from "./text.js";

/** @import { Run } from "./trace-model.js" */
/** @import { CellNode, Chip, SharedCharacter, Tok } from "./types.d.ts" */

const BLOCK = 100;
const NEAR = 24;
const FIRST_SLICE = 120;
const SLICE = 200;

/** The chips of one run. */
export class Strip {
  /** @param {{onToken: (i: number, by: string) => void}} hooks @param {string} words what it is, read aloud */
  constructor(hooks, words) {
    this.hooks = hooks;
    this.node = el("div", "strip", "", { role: "listbox", "aria-label": words, "aria-orientation": "horizontal", dir: "ltr" });
    /** @type {Run|null} */
    this.run = null;
    /** By token. @type {Chip[]} */
    this.chips = [];
    /** What stands for a group of tokens that share characters. @type {Array<{first: number, nodes: HTMLElement[]}>} */
    this.pieces = [];
    /** First token of the last group, whose last character may still grow. */
    this.open = 0;
    this.block = newBlock();
    this.timer = 0;
    this.waiting = false;
    this.selected = -1;
    this.peer = -1;
    this.mark = -1;
    this.width = 0;
    this.node.addEventListener("click", (event) => this.#pick(event));
    this.node.addEventListener("copy", (event) => this.#copy(event));
    this.node.addEventListener("pointerover", (event) => this.#hint(event));
    this.observer = new ResizeObserver(() => this.#resized());
    this.observer.observe(this.node);
  }

  /** Starts over for a run. @param {Run} run */
  clear(run) {
    this.run = run;
    this.chips = [];
    this.pieces = [];
    this.open = 0;
    this.selected = this.peer = this.mark = -1;
    this.block = newBlock();
    this.node.replaceChildren(this.block);
  }

  /** Draws what came since the last call, a slice at least; stays at the end only when the reader is there. */
  update() {
    const { run } = this;
    if (run === null || run.tokens.length === this.chips.length) return;
    const follows = this.node.scrollTop + this.node.clientHeight >= this.node.scrollHeight - NEAR;
    this.#draw(run, this.chips.length === 0 ? FIRST_SLICE : this.chips.length + SLICE);
    if (follows) this.node.scrollTop = this.node.scrollHeight;
    this.#goOn(run);
  }

  /** Draws the rest with the next frames. @param {Run} run */
  #goOn(run) {
    const rest = this.chips.length < run.tokens.length;
    this.node.toggleAttribute("data-busy", rest);
    if (!rest || this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      if (this.run === null) return;
      this.#draw(this.run, this.chips.length + SLICE);
      this.#goOn(this.run);
    });
  }

  /** The chip of a token, drawn now when its turn has not come. @param {number} i @returns {Chip|undefined} */
  #reach(i) {
    if (this.run !== null && i >= this.chips.length && i < this.run.tokens.length) this.#draw(this.run, i + 1);
    return this.chips[i];
  }

  /** Draws chips up to a token. @param {Run} run @param {number} upTo one behind the last */
  #draw(run, upTo) {
    if (run.tokens.length === this.chips.length) return;
    const groups = clusters(run.tokens.slice(this.open, upTo));
    for (const group of groups) {
      const first = this.open + group.first;
      const last = this.open + group.last;
      if (last <= this.chips.length) continue;
      this.#dropFrom(first);
      this.#appendGroup(run, first, last, group.chars);
    }
    this.open += groups[groups.length - 1].first;
    this.#closeBlock();
    if (this.selected < 0 && this.chips.length > 0) this.chips[0].tabIndex = 0;
  }

  /** Takes back chips whose character turned out to go on in the next token. @param {number} first */
  #dropFrom(first) {
    const from = this.pieces.findLastIndex((piece) => piece.first < first) + 1;
    for (const { nodes } of this.pieces.splice(from)) for (const node of nodes) node.remove();
    this.chips.length = Math.min(this.chips.length, first);
  }

  /** @param {Run} run @param {number} first @param {number} last @param {SharedCharacter[]} chars */
  #appendGroup(run, first, last, chars) {
    /** @type {HTMLElement[]} */
    const nodes = [];
    const chips = run.tokens.slice(first, last).map((token) => this.#chip(run, token));
    if (chars.length === 0) {
      nodes.push(...chips);
    } else {
      const group = el("span", "split", "", { role: "presentation" });
      const whole = el("span", "whole", chars.map((char) => char.label).join(""), { "aria-hidden": "true" });
      whole.dataset.tip = "One character whose bytes come from several tokens, shown below it.";
      const parts = el("span", "parts", "", { role: "presentation" });
      parts.append(...chips);
      group.append(whole, parts);
      nodes.push(group);
    }
    if (breaksLine(run.tokens[last - 1].bytes)) nodes.push(el("span", "br", "", { "aria-hidden": "true" }));
    this.block.append(...nodes);
    this.pieces.push({ first, nodes });
    if (this.block.childElementCount > 2 * BLOCK) this.#closeBlock();
  }

  /** @param {Run} run @param {Tok} token @returns {Chip} */
  #chip(run, token) {
    const { i } = token;
    const state = token.eos ? `s-end ${token.fused ? `s-${token.state}` : ""}` : `s-${token.state}`;
    const node = el("span", `tok ${state}`, "", { role: "option", "aria-selected": "false", "aria-label": ariaLabel(run, token) });
    const chip = Object.assign(node, { token: i });
    chip.tabIndex = -1;
    chip.dir = "auto";
    if (token.broken) chip.classList.add("s-broken");
    if (token.control) chip.classList.add("control");
    if (i === this.mark) flag(chip);
    if (i === this.selected) {
      chip.classList.add("selected");
      chip.setAttribute("aria-selected", "true");
      chip.tabIndex = 0;
    }
    if (i === this.peer) chip.classList.add("peer");
    if (token.state === "replaced" && token.piece === 0) chip.append(former(run, token));
    if (token.eos) chip.append(el("span", "c c-glyph", "\u23f9 end"));
    else if (token.bytes.length === 0) chip.append(el("span", "c c-glyph", "\u2205"));
    else chip.append(...cellNodes(token.bytes, token.start));
    this.chips[i] = chip;
    return chip;
  }

  /** Once a block holds enough, its last line, which may still grow, moves on to a new block. */
  #closeBlock() {
    const children = elements(this.block);
    if (children.length <= BLOCK || this.node.clientWidth === 0) return;
    const cut = this.#lineStart(children, children.length - 1);
    if (cut <= 0) return;
    const rest = newBlock();
    rest.append(...children.slice(cut));
    this.block.after(rest);
    this.block.style.containIntrinsicSize = `auto ${this.block.offsetHeight}px`;
    this.block.classList.add("closed");
    this.block = rest;
  }

  /** The first child on the line on which child `at` stands. @param {HTMLElement[]} children @param {number} at */
  #lineStart(children, at) {
    const top = (/** @type {number} */ k) => children[k].offsetTop + children[k].offsetHeight;
    let cut = at;
    while (cut > 0 && Math.abs(top(cut - 1) - top(at)) < 8) cut -= 1;
    return cut;
  }

  /** New width, new lines: blocks are cut again. */
  #resized() {
    const width = this.node.clientWidth;
    if (width === 0 || Math.abs(width - this.width) < 2) return;
    this.width = width;
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => {
      const place = this.node.scrollTop / Math.max(1, this.node.scrollHeight);
      const children = elements(this.node).flatMap(elements);
      this.block = newBlock();
      this.node.replaceChildren(this.block);
      for (let at = 0; at < children.length; at += BLOCK) {
        this.block.append(...children.slice(at, at + BLOCK));
        this.#closeBlock();
      }
      this.node.scrollTop = place * this.node.scrollHeight;
    }, 120);
  }

  /** Marks a token as chosen. @param {number} i -1 for none */
  select(i) {
    if (i === this.selected) return;
    const before = this.chips[this.selected] ?? this.chips[0];
    if (before !== undefined) {
      before.classList.remove("selected");
      before.setAttribute("aria-selected", "false");
      before.tabIndex = -1;
    }
    this.selected = i;
    const chip = this.#reach(i) ?? this.chips[0];
    if (chip === undefined) return;
    chip.tabIndex = 0;
    if (i < 0) return;
    chip.classList.add("selected");
    chip.setAttribute("aria-selected", "true");
  }

  /** Gives the keyboard to the chosen token. */
  focus() {
    this.chips[this.selected]?.focus({ preventScroll: true });
  }

  /** Marks the token of the other run's choice, by byte. @param {number} i */
  shadow(i) {
    this.chips[this.peer]?.classList.remove("peer");
    this.peer = i;
    this.#reach(i)?.classList.add("peer");
  }

  /** Marks where the runs part. @param {number} i */
  divergeAt(i) {
    const before = this.chips[this.mark];
    before?.classList.remove("diverges");
    before?.querySelector(".flag")?.remove();
    this.mark = i; // a chip that is drawn later is flagged as it is made
    if (this.chips[i] !== undefined) flag(this.chips[i]);
  }

  /** Scrolls the strip, and only the strip, until a token is in sight. @param {number} i */
  reveal(i) {
    const chip = this.chips[i];
    if (chip === undefined) return;
    const at = chip.getBoundingClientRect();
    const frame = this.node.getBoundingClientRect();
    if (at.top < frame.top + 4 || at.bottom > frame.bottom - 4) {
      this.node.scrollTop += at.top - frame.top - frame.height / 3;
    }
  }

  /** The chip an event happened on. @param {Event} event @returns {Chip|null} */
  #chipOf(event) {
    return event.target instanceof Element ? /** @type {Chip|null} */ (event.target.closest(".tok")) : null;
  }

  /** @param {MouseEvent} event */
  #pick(event) {
    const chip = this.#chipOf(event);
    const selection = document.getSelection();
    if (chip !== null && (selection === null || selection.isCollapsed)) this.hooks.onToken(chip.token, "click");
  }

  /** The reason in a tooltip, made only when asked for. @param {PointerEvent} event */
  #hint(event) {
    const chip = this.#chipOf(event);
    if (chip !== null && chip.dataset.tip === undefined) chip.dataset.tip = chip.getAttribute("aria-label") ?? "";
  }

  /** Puts the exact text of the selected chips on the clipboard, not the glyphs that stand for it. @param {ClipboardEvent} event */
  #copy(event) {
    const text = this.selectedText();
    if (text === null || event.clipboardData === null) return;
    event.clipboardData.setData("text/plain", text);
    event.preventDefault();
  }

  /** Exact text of what is selected in this strip; null when nothing is. @returns {string|null} */
  selectedText() {
    const selection = document.getSelection();
    if (this.run === null || selection === null || selection.isCollapsed || selection.rangeCount === 0) return null;
    const range = selection.getRangeAt(0);
    let from = Infinity;
    let to = -1;
    for (const cell of /** @type {NodeListOf<CellNode>} */ (this.node.querySelectorAll(".c"))) {
      if (cell.fromByte === undefined || !range.intersectsNode(cell)) continue;
      const [start, end] = covered(range, cell, cell.fromByte);
      if (end <= start) continue;
      from = Math.min(from, start);
      to = Math.max(to, end);
    }
    if (to < 0) return null;
    [from, to] = wholeCharacters(this.run.bytes, from, to);
    return exactText(this.run.bytes.subarray(from, to));
  }
}

function newBlock() {
  return el("div", "block", "", { role: "presentation" });
}

/** @param {HTMLElement} node */
function elements(node) {
  return /** @type {HTMLElement[]} */ ([...node.children]);
}

/** What the drafter had written where another token won; shown on demand. @param {Run} run @param {Tok} token */
function former(run, token) {
  const drafted = run.windows[token.window].draft[token.index];
  const node = el("del", "former", "", { "aria-hidden": "true" });
  if (drafted === undefined || drafted.eos) node.textContent = "\u23f9 end";
  else node.append(...cellNodes(fromHex(drafted.hex), token.start).map((cell) => Object.assign(cell, { fromByte: undefined })));
  return node;
}

/** @param {Chip} chip */
function flag(chip) {
  chip.classList.add("diverges");
  chip.prepend(el("span", "flag", "", { "aria-hidden": "true" }));
}

/** The bytes of a cell, which begins at byte `from`, that a range covers. @param {Range} range @param {CellNode} cell @param {number} from @returns {[number, number]} */
function covered(range, cell, from) {
  const text = cell.textContent ?? "";
  const { length } = text;
  const place = (/** @type {Node} */ container, /** @type {number} */ offset, /** @type {number} */ otherwise) => (cell.contains(container) ? (container.nodeType === Node.TEXT_NODE ? offset : offset === 0 ? 0 : length) : otherwise);
  const first = place(range.startContainer, range.startOffset, 0);
  const last = place(range.endContainer, range.endOffset, length);
  if (last <= first) return [0, 0];
  if (!cell.isText) return [from, cell.toByte];
  const marked = text.startsWith("\u25cc") && byteLength(text) > cell.toByte - from;
  if (marked) return [from, cell.toByte];
  const at = (/** @type {number} */ offset) => from + byteLength(text.slice(0, offset));
  return [at(first), at(last)];
}
