// The only place that makes nodes. Text enters through textContent alone, so nothing a model wrote is ever parsed.

import { cells } from "./text.js";

/** @import { CellNode, Part } from "./types.d.ts" */

const SVG = "http://www.w3.org/2000/svg";

/**
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag @param {string} [className] @param {string} [text] @param {Record<string, string>} [attributes]
 * @returns {HTMLElementTagNameMap[K]}
 */
export function el(tag, className = "", text = "", attributes = {}) {
  const node = document.createElement(tag);
  if (className !== "") node.className = className;
  if (text !== "") node.textContent = text;
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

/**
 * @template {keyof SVGElementTagNameMap} K
 * @param {K} tag @param {Record<string, string|number>} [attributes] @param {string} [text]
 * @returns {SVGElementTagNameMap[K]}
 */
export function svg(tag, attributes = {}, text = "") {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, String(value));
  if (text !== "") node.textContent = text;
  return node;
}

/**
 * A button with a text or a symbol, and the words for it.
 * @param {string} className @param {string} text @param {string} title @param {() => void} action
 */
export function button(className, text, title, action) {
  const node = el("button", className, text, { type: "button", "aria-label": title });
  node.dataset.tip = title;
  node.addEventListener("click", () => action());
  return node;
}

/**
 * Nodes for bytes: ordinary text as text, the rest as marked glyphs. Every node knows its bytes, for copying.
 * @param {Uint8Array} bytes @param {number} start @returns {CellNode[]}
 */
export function cellNodes(bytes, start) {
  return cells(bytes, start).map((cell) => {
    const named = cell.kind === "glyph" && /^[A-Z]/.test(cell.label);
    const node = el("span", `c c-${named ? "named" : cell.kind}`, cell.label);
    if (cell.title !== "") node.title = cell.title;
    return Object.assign(node, { fromByte: cell.start, toByte: cell.end, isText: cell.kind === "text" });
  });
}

/** A quoted stretch of bytes, isolated from the direction of what stands around it. @param {Uint8Array} bytes */
export function quoted(bytes) {
  const node = el("bdi", "quote", "", { dir: "auto" });
  node.append(...cellNodes(bytes, 0));
  return node;
}

/** Puts a sentence into a node, in place of what was there. @param {HTMLElement} node @param {Part[]} parts */
export function fillSentence(node, parts) {
  node.replaceChildren(
    ...parts.map((part) => (typeof part === "string" ? document.createTextNode(part) : "eos" in part ? el("b", "", "end of sequence") : quoted(part.quote))),
  );
}

/** Hands a file to the reader. @param {Blob} blob @param {string} name */
export function download(blob, name) {
  const url = URL.createObjectURL(blob);
  const link = el("a", "", "", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/**
 * One tooltip for a whole view: shows `data-tip` of what is pointed at, focused or pressed. Pressing keeps it open, so that
 * nothing is said to a mouse alone.
 * @param {HTMLElement} root
 */
export function tooltip(root) {
  const box = el("div", "tip", "", { role: "tooltip" });
  box.hidden = true;
  root.append(box);
  const show = (/** @type {HTMLElement} */ target) => {
    box.textContent = target.dataset.tip ?? "";
    box.hidden = false;
    const at = target.getBoundingClientRect();
    const within = root.getBoundingClientRect();
    const left = Math.max(0, Math.min(at.left - within.left, within.width - box.offsetWidth - 4));
    const below = at.bottom + box.offsetHeight + 10 < window.innerHeight;
    box.style.left = `${left}px`;
    box.style.top = `${(below ? at.bottom + 6 : at.top - box.offsetHeight - 6) - within.top}px`;
  };
  const hide = () => {
    box.hidden = true;
  };
  const over = (/** @type {Event} */ event) => {
    const target = event.target instanceof Element ? event.target.closest("[data-tip]") : null;
    if (target instanceof HTMLElement) show(target);
    else hide();
  };
  root.addEventListener("pointerover", over);
  root.addEventListener("focusin", (event) => {
    if (event.target instanceof Element && event.target.matches(":focus-visible")) over(event);
  });
  root.addEventListener("click", over);
  root.addEventListener("pointerleave", hide);
  root.addEventListener("focusout", hide);
  return { hide };
}
