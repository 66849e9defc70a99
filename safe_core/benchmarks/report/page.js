const figures = JSON.parse(document.getElementById("figures").textContent);
const plots = [...document.querySelectorAll(".plot")];
const dark = matchMedia("(prefers-color-scheme: dark)");
const colours = layout => {
  const style = getComputedStyle(document.documentElement);
  const [ink, line, card] = ["--ink", "--line", "--card"].map(name => style.getPropertyValue(name).trim());
  const set = { "font.color": ink, "hoverlabel.bgcolor": card, "hoverlabel.bordercolor": ink, "hoverlabel.font.color": ink };
  for (const axis of Object.keys(layout).filter(key => /^[xy]axis/.test(key))) {
    Object.assign(set, { [axis + ".gridcolor"]: line, [axis + ".linecolor"]: line, [axis + ".zerolinecolor"]: line,
      [axis + ".color"]: ink, [axis + ".tickcolor"]: line });
  }
  return set;
};
const drawn = plots.map(async place => {
  const { data, layout } = figures[place.dataset.figure];
  await Plotly.newPlot(place, data, layout, { responsive: true, displayModeBar: false });
  await Plotly.relayout(place, colours(layout));
});
dark.addEventListener("change", () => plots.forEach(place => Plotly.relayout(place, colours(place.layout))));
Promise.all(drawn).then(() => document.documentElement.dataset.drawn = plots.length);
