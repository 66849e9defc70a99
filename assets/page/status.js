// The line that says where things stand. What it says is data: it is only ever set as text.
const SILENCE_MS = 3000; // a server that runs something is heard from every second
const GONE = "The server does not answer. What is on the page stays here; it is loaded again by itself as soon as the server is back.";
const line = document.createElement("p");
const words = document.createElement("span");
const bar = document.createElement("progress");
line.className = "sl-status-line";
line.append(words, bar);
element.replaceChildren(line);
bar.max = 1;
bar.setAttribute("aria-label", "Progress");
let heard = Date.now();

/** @param {string} kind @param {string} text @param {number|null} fraction */
const say = (kind, text, fraction) => {
  const error = kind === "error";
  line.dataset.kind = kind;
  if (line.getAttribute("role") !== (error ? "alert" : "status")) line.setAttribute("role", error ? "alert" : "status");
  if (words.textContent !== text) words.textContent = text;
  bar.hidden = fraction === null;
  if (fraction !== null) bar.value = fraction;
};
const draw = () => {
  const { kind = "idle", text = "", fraction = null } = props.value ?? {};
  heard = Date.now();
  say(kind, text, fraction);
};
/** Whether anything answers at the page's address. */
const answers = () => fetch(new URL("gradio_api/app_id", location.href), { cache: "no-store" }).then(() => true, () => false);
setInterval(async () => {
  if (!["busy", "paused"].includes(props.value?.kind) || Date.now() - heard < SILENCE_MS || document.hidden) return;
  if (!(await answers()) && Date.now() - heard >= SILENCE_MS) say("error", GONE, null);
}, 1500);
window.addEventListener("hashchange", (event) => {
  if (event.isTrusted) trigger("address", { hash: location.hash.slice(0, 2000) });
});
watch("value", draw);
draw();
