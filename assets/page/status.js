// The line that says where things stand. What it says is data: it is only ever set as text.
const line = document.createElement("p");
const words = document.createElement("span");
const bar = document.createElement("progress");
line.className = "sl-status-line";
line.append(words, bar);
element.replaceChildren(line);
bar.max = 1;
bar.setAttribute("aria-label", "Progress");
const draw = () => {
  const { kind = "idle", text = "", fraction = null } = props.value ?? {};
  const error = kind === "error";
  line.dataset.kind = kind;
  if (line.getAttribute("role") !== (error ? "alert" : "status")) line.setAttribute("role", error ? "alert" : "status");
  if (words.textContent !== text) words.textContent = text;
  bar.hidden = fraction === null;
  if (fraction !== null) bar.value = fraction;
};
watch("value", draw);
draw();
