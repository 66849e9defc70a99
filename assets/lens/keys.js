// Keys of the lens: one table for what they do and for the help that lists them.

/** @typedef {{keys: string[], shift?: boolean, action: string, help: string}} Key */

/** @type {Key[]} */
export const KEYS = [
  { keys: ["ArrowLeft"], shift: false, action: "previousToken", help: "previous token" },
  { keys: ["ArrowRight"], shift: false, action: "nextToken", help: "next token" },
  { keys: ["ArrowLeft"], shift: true, action: "previousWindow", help: "previous window" },
  { keys: ["ArrowRight"], shift: true, action: "nextWindow", help: "next window" },
  { keys: ["o"], action: "nextOov", help: "next OOV-like token" },
  { keys: ["O"], action: "previousOov", help: "previous OOV-like token" },
  { keys: ["r"], action: "nextReplaced", help: "next replacement" },
  { keys: ["R"], action: "previousReplaced", help: "previous replacement" },
  { keys: ["Home"], action: "first", help: "first token" },
  { keys: ["End"], action: "last", help: "last token; follows a run that is still going" },
  { keys: [" "], action: "play", help: "play or pause" },
  { keys: ["d"], action: "divergence", help: "where the two responses part" },
  { keys: ["b"], action: "broke", help: "where an every-token method first broke" },
  { keys: ["t"], action: "peek", help: "show or hide the drafter's token where another won" },
  { keys: ["x"], action: "otherPane", help: "the other response, same place" },
  { keys: ["p"], action: "presenter", help: "presenter mode: large type" },
  { keys: ["?"], action: "help", help: "this help" },
  { keys: ["Escape"], action: "close", help: "close help, leave presenter mode" },
];

/** @type {{[key: string]: string|undefined}} */
const NAMES = { ArrowLeft: "\u2190", ArrowRight: "\u2192", " ": "space", Escape: "Esc" };

/** A key as it is printed on the keyboard. @param {Key} entry */
export function keyName(entry) {
  const name = NAMES[entry.keys[0]] ?? entry.keys[0];
  return entry.shift === true ? `shift ${name}` : name;
}

/** The action a key press asks for; null when it is not ours. @param {KeyboardEvent} event */
export function actionOf(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return null;
  const entry = KEYS.find((k) => k.keys.includes(event.key) && (k.shift === undefined || k.shift === event.shiftKey));
  return entry === undefined ? null : entry.action;
}

/** Whether a key press belongs to the thing that has the keyboard: something is typed, dragged or pressed there. @param {KeyboardEvent} event */
export function isTyping(event) {
  const target = event.target;
  if (!(target instanceof Element)) return false;
  if (target.closest("input, textarea, select, [contenteditable=''], [contenteditable=true], audio, video") !== null) return true;
  return (event.key === " " || event.key === "Enter") && target.closest("button, a, [role=button], summary") !== null;
}
