// Asks the daemon again and again, and shows what it says.
"use strict";

(() => {
  const { el, say, plots, services, machine, waits, hurts, trials, decisions, notes } = Parts;
  const at = id => document.getElementById(id);
  const EVERY = 1000;
  let spans = [];
  let span = 0;
  let paused = false;
  // When the daemon was started, by the clock of this browser, seconds.
  let epoch = null;
  let due = 0;
  // Whether a service has a class that goals and throttling are about.
  let classed = false;

  const ask = async path => {
    const answer = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(8000) });
    if (!answer.ok) throw new Error((await answer.text()).trim() || `it answers ${answer.status}`);
    return answer.json();
  };

  const name = seconds => (seconds < 3600 ? `${seconds / 60} minutes` : seconds === 3600 ? "hour" : `${seconds / 3600} hours`);
  const choices = all => {
    if (spans.length > 0) return;
    spans = all;
    all.forEach(([length], i) => {
      const choose = () => {
        span = i;
        due = 0;
        turn();
      };
      at("spans").append(el("label", {}, el("input", { type: "radio", name: "span", value: i, checked: i === 0, on: { change: choose } }), ` ${name(length)}`));
    });
  };

  const show = now => {
    // The clock of the browser and the daemon's uptime drift apart by parts of a second: plots are not to tremble.
    const begun = Date.now() / 1000 - now.at_s;
    if (epoch === null || Math.abs(begun - epoch) > 5) epoch = begun;
    choices(now.spans);
    classed = now.services.some(service => service.class === "high" || service.class === "low");
    const title = now.host ? `Cotenant on ${now.host}` : "Cotenant";
    document.title = title;
    say(at("title"), title);
    say(at("state"), now.state);
    say(at("source"), now.source);
    notes(at("notes"), now.notes);
    services(at("services"), now);
    machine(at("places"), now);
    waits(at("waits"), now.services);
    hurts(at("losses"), now.interference);
    trials(at("trials"), now.trials, epoch);
    decisions(at("decisions"), now.last, epoch);
  };

  const draw = history => {
    plots(at("goals"), history, "goals", epoch, classed
      ? "Nothing is known of any goal yet: the daemon has just begun, or it only observes and so never measures a service alone."
      : "No service has the class high or low, so there is no goal to keep and nothing to throttle for it.");
    plots(at("places"), history, "places", epoch, "Nothing ran yet.");
    plots(at("memory"), history, "memory", epoch, "Misses of the last-level cache are not counted here; cotenant doctor says why.");
  };

  let busy = false;
  const turn = async () => {
    if (busy || paused || document.hidden) return;
    busy = true;
    try {
      show(await ask("/now.json"));
      if (Date.now() >= due) {
        const asked = span;
        draw(await ask(`/plots/${spans[asked][0]}.json`));
        // Where another span was chosen meanwhile, its turn is next.
        due = asked === span ? Date.now() + spans[span][1] * 1000 - 100 : 0;
      }
      at("trouble").hidden = true;
    } catch (why) {
      say(at("trouble"), `What is shown is old: the daemon does not answer (${why.message}).`);
      at("trouble").hidden = false;
    } finally {
      busy = false;
    }
  };

  at("pause").addEventListener("click", () => {
    paused = !paused;
    at("pause").setAttribute("aria-pressed", String(paused));
    say(at("pause"), paused ? "Go on" : "Pause");
    turn();
  });
  document.addEventListener("visibilitychange", turn);
  setInterval(turn, EVERY);
  turn();
})();
