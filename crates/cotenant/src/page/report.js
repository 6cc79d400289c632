// Draws what a report holds as data, in the place of what stands there for browsers without scripts.
"use strict";

(() => {
  const { el, plots, hurts, trials, decisions } = Parts;
  for (const holder of document.querySelectorAll("[data-scene]")) {
    const scene = JSON.parse(document.getElementById(holder.dataset.scene).textContent);
    const part = name => holder.querySelector(`[data-part="${name}"]`);
    const fill = (name, draw) => {
      const into = part(name);
      if (!into) return;
      into.replaceChildren();
      draw(into);
    };
    for (const name of ["goals", "places", "memory"]) {
      if (scene.course.plots.some(plot => plot.part === name && plot.lines.length > 0)) {
        fill(name, into => plots(into, scene.course, name, null, ""));
      }
    }
    if (scene.interference.length > 0) fill("hurts", into => hurts(into, scene.interference));
    if (scene.trials.length > 0) fill("trials", into => trials(into, scene.trials, null));
    if (scene.last.length > 0) fill("decisions", into => decisions(into, scene.last, null));
    holder.prepend(el("span", { class: "drawn", hidden: true }));
  }
})();
