// Tokenizers on one ruler of bytes: a row of cells per tokenizer, lines through all rows where every one of them has a boundary.
/** @typedef {{label: string, words: string, start: number, end: number, alone: boolean, unaligned?: boolean}} Cell */
/** @typedef {{name: string, words: string, tokens: Cell[]}} Entry */

/** @param {string} tag @param {string} name @param {string} [text] */
const node = (tag, name, text) => {
  const made = document.createElement(tag);
  made.className = name;
  if (text !== undefined) made.textContent = text;
  return made;
};
const UNIT = 13; // pixels a byte takes; labels of short tokens shrink to fit
/** @param {Cell} token */
const cell = (token) => {
  const made = node("span", "sl-bench-token", token.label);
  const width = (token.end - token.start) * UNIT;
  made.style.left = `${token.start * UNIT}px`;
  made.style.width = `${width}px`;
  made.classList.toggle("alone", token.alone);
  made.classList.toggle("unaligned", token.unaligned === true);
  made.title = token.words;
  const letters = [...token.label].length;
  made.style.fontSize = `${Math.max(8, Math.min(14, (1.5 * (width - 5)) / Math.max(1, letters)))}px`;
  return made;
};
/** @param {Entry} entry @param {number} length bytes of the whole text */
const row = (entry, length) => {
  const made = node("div", "sl-bench-row");
  const name = node("span", "sl-bench-name", entry.name);
  name.title = entry.name;
  const lane = node("span", "sl-bench-lane");
  lane.style.width = `${length * UNIT}px`;
  lane.append(...entry.tokens.map(cell));
  made.append(name, lane, node("span", "sl-bench-count", entry.words));
  return made;
};
const draw = () => {
  const value = props.value;
  if (!value || !Array.isArray(value.rows) || value.rows.length === 0) {
    element.replaceChildren();
    return;
  }
  const box = node("div", "sl-bench");
  box.tabIndex = 0;
  box.setAttribute("role", "group");
  box.setAttribute("aria-label", "Tokens of each tokenizer on a ruler of bytes");
  const rows = node("div", "sl-bench-rows");
  rows.append(...value.rows.map((/** @type {Entry} */ entry) => row(entry, value.length)));
  for (const at of value.common) {
    const line = node("span", "sl-bench-common");
    line.style.left = `calc(var(--sl-bench-name) + ${at * UNIT}px)`;
    rows.append(line);
  }
  box.append(rows);
  element.replaceChildren(box, node("p", "sl-bench-summary", value.summary));
};
watch("value", draw);
draw();
