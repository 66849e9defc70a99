// Points of charts lead to their tokens: a click writes the place into the address, which the lens follows.
(() => {
  const joined = new WeakSet();
  const go = (event) => {
    const place = event.points?.[0]?.customdata;
    if (!Array.isArray(place)) return;
    const fields = new URLSearchParams(location.hash.slice(1));
    fields.delete("window");
    fields.set("run", String(place[0]));
    fields.set("token", String(place[1]));
    location.hash = fields.toString();
    document.getElementById("lens")?.scrollIntoView({ block: "start", behavior: "smooth" });
  };
  const join = () => {
    for (const chart of document.querySelectorAll("#charts .js-plotly-plot")) {
      if (joined.has(chart) || typeof chart.on !== "function") continue;
      joined.add(chart);
      chart.on("plotly_click", go);
    }
  };
  new MutationObserver(join).observe(document.documentElement, { childList: true, subtree: true });
})();
