// Draws what a report holds as data, in the place of what stands there for browsers without scripts.
"use strict";

(() => {
  const { el, plots, hurts, trials, decisions } = Parts;
  for (const holder of document.querySelectorAll("[data-embedded]")) {
    const data = JSON.parse(document.getElementById(holder.dataset.embedded).textContent);
    const part = name => holder.querySelector(`[data-part="${name}"]`);
    const fill = (name, draw) => {
      const into = part(name);
      if (!into) return;
      into.replaceChildren();
      draw(into);
    };
    for (const name of ["goals", "places", "memory"]) {
      if (data.history.plots.some(plot => plot.part === name && plot.lines.length > 0)) {
        fill(name, into => plots(into, data.history, name, null, ""));
      }
    }
    if (data.interference.length > 0) fill("hurts", into => hurts(into, data.interference));
    if (data.trials.length > 0) fill("trials", into => trials(into, data.trials, null));
    if (data.last.length > 0) fill("decisions", into => decisions(into, data.last, null));
    holder.prepend(el("span", { class: "drawn", hidden: true }));
  }
})();
