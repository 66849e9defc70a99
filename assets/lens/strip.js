// The response strip: every token a chip. Chips stand in blocks of whole lines; the browser skips blocks that are out of
// sight, so thousands of tokens stay quick while search, selection and screen readers still see all of them.

import { cellNodes, el } from "./dom.js";
import { ariaLabel } from "./sentences.js";
import { breaksLine, byteLength, clusters, exactText, fromHex, wholeCharacters } from "./text.js";

const BLOCK = 160;
const NEAR = 24;

/** The chips of one run. */
export class Strip {
  /** @param {{onToken: (i: number, by: string) => void}} hooks @param {string} words what it is, read aloud */
  constructor(hooks, words) {
    this.hooks = hooks;
    this.node = el("div", "strip", "", { role: "listbox", "aria-label": words, "aria-orientation": "horizontal", dir: "ltr" });
    /** @type {HTMLElement[]} chips by token */
    this.chips = [];
    this.selected = -1;
    this.peer = -1;
    this.mark = -1;
    this.width = 0;
    this.node.addEventListener("click", (event) => this.#pick(event));
    this.node.addEventListener("copy", (event) => this.#copy(event));
    this.node.addEventListener("pointerover", (event) => this.#hint(event));
    this.clear(null);
    this.observer = new ResizeObserver(() => this.#resized());
    this.observer.observe(this.node);
  }

  /** Starts over for a run. @param {import("./trace-model.js").Run|null} run */
  clear(run) {
    this.run = run;
    this.chips = [];
    this.pieces = [];
    /** First token of the last group, whose last character may still grow. */
    this.open = 0;
    this.selected = this.peer = this.mark = -1;
    this.block = el("div", "block", "", { role: "presentation" });
    this.node.replaceChildren(this.block);
  }

  /** Draws what came since the last call; stays at the end only when the reader is there. */
  update() {
    const tokens = this.run.tokens;
    if (tokens.length === this.chips.length) return;
    const follows = this.node.scrollTop + this.node.clientHeight >= this.node.scrollHeight - NEAR;
    const groups = clusters(tokens.slice(this.open));
    for (const group of groups) {
      const first = this.open + group.first;
      const last = this.open + group.last;
      if (last <= this.chips.length) continue;
      this.#dropFrom(first);
      this.#appendGroup(first, last, group.chars);
    }
    this.open += groups[groups.length - 1].first;
    this.#closeBlock();
    if (this.selected < 0 && this.chips.length > 0) this.chips[0].tabIndex = 0;
    if (follows) this.node.scrollTop = this.node.scrollHeight;
  }

  /** Takes back chips whose character turned out to go on in the next token. */
  #dropFrom(first) {
    while (this.pieces.length > 0 && this.pieces[this.pieces.length - 1].first >= first) {
      const { nodes } = this.pieces.pop();
      for (const node of nodes) node.remove();
    }
    this.chips.length = Math.min(this.chips.length, first);
  }

  #appendGroup(first, last, chars) {
    const nodes = [];
    const chips = [];
    for (let i = first; i < last; i += 1) chips.push(this.#chip(i));
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
    if (breaksLine(this.run.tokens[last - 1].bytes)) nodes.push(el("span", "br", "", { "aria-hidden": "true" }));
    this.block.append(...nodes);
    this.pieces.push({ first, nodes });
    if (this.block.childElementCount > 2 * BLOCK) this.#closeBlock();
  }

  #chip(i) {
    const token = this.run.tokens[i];
    const state = token.eos ? `s-end ${token.fused ? `s-${token.state}` : ""}` : `s-${token.state}`;
    const chip = el("span", `tok ${state}`, "", { role: "option", "aria-selected": "false", "aria-label": ariaLabel(this.run, token) });
    chip.tabIndex = -1;
    chip.dir = "auto";
    chip.token = i;
    if (token.broken) chip.classList.add("s-broken");
    if (token.control) chip.classList.add("control");
    if (i === this.mark) flag(chip);
    if (i === this.selected) chip.classList.add("selected");
    if (token.state === "replaced" && token.piece === 0) chip.append(this.#former(token));
    if (token.eos) chip.append(el("span", "c c-glyph", "\u23f9 end"));
    else if (token.bytes.length === 0) chip.append(el("span", "c c-glyph", "\u2205"));
    else chip.append(...cellNodes(token.bytes, token.start));
    this.chips[i] = chip;
    return chip;
  }

  /** What the drafter had written where another token won; shown on demand. */
  #former(token) {
    const drafted = this.run.windows[token.window].draft[token.index];
    const node = el("del", "former", "", { "aria-hidden": "true" });
    if (drafted === undefined || drafted.eos) node.textContent = "\u23f9 end";
    else node.append(...cellNodes(fromHex(drafted.hex), token.start).map((cell) => Object.assign(cell, { fromByte: undefined })));
    return node;
  }

  /** Once a block holds enough, its last line, which may still grow, moves on to a new block. */
  #closeBlock() {
    const children = [...this.block.children];
    if (children.length <= BLOCK || this.node.clientWidth === 0) return;
    const cut = this.#lineStart(children, children.length - 1);
    if (cut <= 0) return;
    const rest = el("div", "block", "", { role: "presentation" });
    rest.append(...children.slice(cut));
    this.block.after(rest);
    this.block.style.containIntrinsicSize = `auto ${this.block.offsetHeight}px`;
    this.block.classList.add("closed");
    this.block = rest;
  }

  /** The first child on the line on which child `at` stands. */
  #lineStart(children, at) {
    const top = (k) => children[k].offsetTop + children[k].offsetHeight;
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
    this.timer = setTimeout(() => {
      const place = this.node.scrollTop / Math.max(1, this.node.scrollHeight);
      const children = [...this.node.children].flatMap((block) => [...block.children]);
      this.block = el("div", "block", "", { role: "presentation" });
      this.node.replaceChildren(this.block);
      for (let at = 0; at < children.length; at += BLOCK) {
        this.block.append(...children.slice(at, at + BLOCK));
        this.#closeBlock();
      }
      this.node.scrollTop = place * this.node.scrollHeight;
    }, 120);
  }

  /** Marks a token as chosen. @param {number} i -1 for none @param {boolean} focus whether it also takes the keyboard */
  select(i, focus) {
    const before = this.chips[this.selected] ?? this.chips[0];
    if (before !== undefined) {
      before.classList.remove("selected");
      before.setAttribute("aria-selected", "false");
      before.tabIndex = -1;
    }
    this.selected = i;
    const chip = this.chips[i] ?? this.chips[0];
    if (chip === undefined) return;
    chip.tabIndex = 0;
    if (i < 0) return;
    chip.classList.add("selected");
    chip.setAttribute("aria-selected", "true");
    if (focus) chip.focus({ preventScroll: true });
    this.reveal(i);
  }

  /** Marks the token of the other run's choice, by byte. */
  shadow(i) {
    this.chips[this.peer]?.classList.remove("peer");
    this.peer = i;
    this.chips[i]?.classList.add("peer");
  }

  /** Marks where the runs part. */
  divergeAt(i) {
    const before = this.chips[this.mark];
    before?.classList.remove("diverges");
    before?.querySelector(".flag")?.remove();
    this.mark = i;
    if (this.chips[i] !== undefined) flag(this.chips[i]);
  }

  /** Scrolls the strip, and only the strip, until a token is in sight. */
  reveal(i) {
    const chip = this.chips[i];
    if (chip === undefined) return;
    const at = chip.getBoundingClientRect();
    const frame = this.node.getBoundingClientRect();
    if (at.top < frame.top + 4 || at.bottom > frame.bottom - 4) {
      this.node.scrollTop += at.top - frame.top - frame.height / 3;
    }
  }

  #pick(event) {
    const chip = event.target instanceof Element ? event.target.closest(".tok") : null;
    const selection = document.getSelection();
    if (chip !== null && (selection === null || selection.isCollapsed)) this.hooks.onToken(chip.token, "click");
  }

  /** The reason in a tooltip, made only when asked for. */
  #hint(event) {
    const chip = event.target instanceof Element ? event.target.closest(".tok") : null;
    if (chip !== null && chip.dataset.tip === undefined) chip.dataset.tip = chip.getAttribute("aria-label");
  }

  /** Puts the exact text of the selected chips on the clipboard, not the glyphs that stand for it. */
  #copy(event) {
    const text = this.selectedText();
    if (text === null || event.clipboardData === null) return;
    event.clipboardData.setData("text/plain", text);
    event.preventDefault();
  }

  /** Exact text of what is selected in this strip; null when nothing is. @returns {string|null} */
  selectedText() {
    const selection = document.getSelection();
    if (selection === null || selection.isCollapsed || selection.rangeCount === 0) return null;
    const range = selection.getRangeAt(0);
    let from = Infinity;
    let to = -1;
    for (const cell of this.node.querySelectorAll(".c")) {
      if (cell.fromByte === undefined || !range.intersectsNode(cell)) continue;
      const [start, end] = covered(range, cell);
      if (end <= start) continue;
      from = Math.min(from, start);
      to = Math.max(to, end);
    }
    if (to < 0) return null;
    [from, to] = wholeCharacters(this.run.bytes, from, to);
    return exactText(this.run.bytes.subarray(from, to));
  }
}

function flag(chip) {
  chip.classList.add("diverges");
  chip.prepend(el("span", "flag", "", { "aria-hidden": "true" }));
}

/** The bytes of a cell that a range covers. */
function covered(range, cell) {
  const length = cell.textContent.length;
  const place = (container, offset, otherwise) => (cell.contains(container) ? (container.nodeType === Node.TEXT_NODE ? offset : offset === 0 ? 0 : length) : otherwise);
  const first = place(range.startContainer, range.startOffset, 0);
  const last = place(range.endContainer, range.endOffset, length);
  if (last <= first) return [0, 0];
  if (!cell.isText) return [cell.fromByte, cell.toByte];
  const marked = cell.textContent.startsWith("\u25cc") && byteLength(cell.textContent) > cell.toByte - cell.fromByte;
  if (marked) return [cell.fromByte, cell.toByte];
  const at = (offset) => cell.fromByte + byteLength(cell.textContent.slice(0, offset));
  return [at(first), at(last)];
}
