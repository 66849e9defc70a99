// A link to a moment: `#trace=NAME&run=left&window=7&token=41`.

/**
 * @typedef {{trace: string|null, run: string|null, window: number|null, token: number|null}} Place
 * `token` counts from 0 in the response; `window` is the window's number.
 */

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
  for (const name of ["trace", "run", "window", "token"]) {
    if (place[name] !== null && place[name] !== undefined) fields.set(name, String(place[name]));
  }
  return `#${fields.toString()}`;
}

/** Writes the place into the address without a step in the history. */
export function writeHash(place) {
  try {
    history.replaceState(history.state, "", formatHash(place));
  } catch {
    // A page that may not change its address (a sandboxed frame) has no links to moments; all else works.
  }
}
