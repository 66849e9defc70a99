// A link to a moment: `#trace=NAME&run=left&window=7&token=41`.

/** @import { Place } from "./types.d.ts" */

/** @param {string|null} text */
function number(text) {
  return text !== null && /^\d{1,9}$/.test(text) ? Number(text) : null;
}

/** @param {string} hash with or without `#` @returns {Place} */
export function parseHash(hash) {
  const fields = new URLSearchParams(hash.replace(/^#/, ""));
  return { trace: fields.get("trace"), run: fields.get("run"), window: number(fields.get("window")), token: number(fields.get("token")) };
}

/** @param {Place} place @returns {string} */
export function formatHash(place) {
  const fields = new URLSearchParams();
  const { trace, run, window, token } = place;
  for (const [name, value] of Object.entries({ trace, run, window, token })) {
    if (value !== null && value !== undefined) fields.set(name, String(value));
  }
  return `#${fields.toString()}`;
}

/** Writes the place into the address without a step in the history. @param {Place} place */
export function writeHash(place) {
  try {
    history.replaceState(history.state, "", formatHash(place));
  } catch {
    // A page that may not change its address (a sandboxed frame) has no links to moments; all else works.
  }
}
