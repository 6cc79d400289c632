// What the live page and reports are made of. Everything that comes from outside becomes text, never markup.
"use strict";

const Parts = (() => {
  // An element. Attributes whose value is null or false are left out; children are elements or text.
  const el = (tag, attributes = {}, ...children) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "on") {
        for (const [event, call] of Object.entries(value)) made.addEventListener(event, call);
      } else if (value !== null && value !== false && value !== undefined) {
        made.setAttribute(name, value === true ? "" : value);
      }
    }
    made.append(...children.flat().filter(child => child !== null && child !== undefined && child !== false));
    return made;
  };

  // Changes the text of an element only where it is another one: a reader is not disturbed.
  const say = (element, text) => {
    if (element.textContent !== text) element.textContent = text;
  };

  // ---- numbers ----

  const NONE = "–";
  const digits = value => {
    const size = Math.abs(value);
    return size === 0 || size >= 100 ? value.toFixed(0) : size >= 10 ? value.toFixed(1) : value.toFixed(2);
  };
  const scaled = (value, units) => {
    for (const [size, unit] of units) {
      if (Math.abs(value) >= size) return `${digits(value / size)} ${unit}`.trim();
    }
    const [size, unit] = units[units.length - 1];
    return value === 0 ? `0 ${unit}`.trim() : `${(value / size).toPrecision(2)} ${unit}`.trim();
  };
  const SECONDS = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]];
  const BYTES = [[1e12, "TB/s"], [1e9, "GB/s"], [1e6, "MB/s"], [1e3, "kB/s"], [1, "B/s"]];
  const PLAIN = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];
  const percent = value => `${(value * 100).toFixed(1)} %`;
  const text = (value, unit) => {
    if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
    if (unit === "share") return percent(value);
    if (unit === "seconds") return scaled(value, SECONDS);
    if (unit === "bytes_per_s") return scaled(value, BYTES);
    if (unit === "cpus") return `${value.toFixed(2)} CPUs`;
    return `${scaled(value, PLAIN)} ${unit}`.trim();
  };
  // Beside an axis there is little room.
  const tick = (value, unit) => {
    if (unit === "share") return `${+(value * 100).toFixed(1)} %`;
    if (unit === "cpus") return String(+value.toFixed(2));
    // A unit that is a word stands in the key.
    return text(value, unit === "seconds" || unit === "bytes_per_s" ? unit : "").replace(/\.0+(?= |$)/, "");
  };
  const count = (n, what) => `${n} ${what}${n === 1 ? "" : what.endsWith("s") ? "es" : "s"}`;
  const signed = value => `${value < 0 ? "−" : "+"}${Math.abs(value * 100).toFixed(1)} %`;

  // A moment, in seconds since the beginning: as a time of day where that is known.
  const clock = (at, epoch) => epoch === null
    ? `${at.toFixed(1)} s`
    : new Date((epoch + at) * 1000).toLocaleTimeString([], { hourCycle: "h23", hour: "2-digit", minute: "2-digit", second: "2-digit" });

  // ---- plots ----

  const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const drawn = new Set();
  const redraw = () => drawn.forEach(plot => plot.redraw(false, true));
  const resized = new ResizeObserver(entries => {
    for (const { target, contentRect } of entries) {
      const plot = target.plot;
      const width = Math.floor(contentRect.width);
      if (plot && width > 0 && width !== plot.width) plot.setSize({ width, height: plot.height });
    }
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

  // Colours of services, the same in every plot, and as far as they go no two alike in one.
  const COLOURS = 7;
  const given = new Map();
  const paint = history => {
    const names = plot => plot.lines.filter(line => line.role === "plain").map(line => line.of ?? line.name);
    const all = new Set(history.plots.flatMap(names));
    for (const name of given.keys()) if (!all.has(name)) given.delete(name);
    // Those of the places first: they stand side by side, and are few enough for a colour each.
    const places = history.plots.filter(plot => plot.part === "places").flatMap(plot => plot.lines);
    for (const plot of [{ lines: places }, ...history.plots]) {
      const own = [...new Set(names(plot))];
      own.filter(name => !given.has(name)).forEach((name, i) => {
        const taken = new Set(own.map(other => given.get(other)));
        const free = [...Array(COLOURS).keys()].find(colour => !taken.has(colour));
        given.set(name, free ?? i % COLOURS);
      });
    }
  };
  const colourOf = (line, spec) => {
    if (line.role === "others") return "--others";
    if (line.role === "foreign") return "--foreign";
    // Each of several goals has the colour of its service.
    const several = spec.lines.filter(other => other.role === "goal").length > 1;
    if (line.role === "goal" && !several) return "--goal";
    if (line.role === "alone") return "--soft";
    return `--c${given.get(line.of ?? line.name) ?? 0}`;
  };
  const DASHES = { goal: [8, 4], alone: [2, 4] };

  // Parts of a whole are drawn from the whole down, each over the one before; a thin line of paper parts them, for
  // their colours are about equally light.
  const stack = lines => {
    const sums = lines[0].values.map(() => 0);
    return lines.map(line => line.values.map((value, i) => (sums[i] += value ?? 0)));
  };

  // A figure with a plot, its key, and its values as a table. `draw` gives it other values.
  const figure = (spec, history, epoch) => {
    const key = el("ul", { class: "key" });
    const said = el("p", { class: "aside", "aria-live": "polite" });
    const canvas = el("div", {
      class: "plot", tabindex: 0, role: "group", "aria-roledescription": "plot",
      "aria-label": `${spec.title}. Left and right arrow keys read its values.`,
    });
    const rows = el("tbody");
    const head = el("tr");
    const table = el("table", {}, el("caption", {}, spec.title), el("thead", {}, head), rows);
    const details = el("details", { class: "values" },
      el("summary", {}, "Values as a table"), el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `Values: ${spec.title}` }, table));
    const caption = el("figcaption", {}, spec.title);
    const left = el("p", { class: "soft" });
    const whole = el("figure", { "data-plot": spec.id }, caption, key, canvas, said, left, details);
    let plot = null;
    let now = { spec, history, epoch };

    const times = () => now.spec.at_s ?? now.history.at_s;
    const values = at => now.spec.lines.map(line => `${line.name} ${text(line.values[at], now.spec.unit)}`);
    const tell = at => {
      const last = times().length - 1;
      now.spec.lines.forEach((line, i) => {
        const output = key.children[i]?.lastElementChild;
        if (!output) return;
        // Of something that has ended, what it was last.
        const known = line.values.findLastIndex(value => Number.isFinite(value));
        const ended = (at === null || at === undefined) && known >= 0 && known < last;
        const value = text(line.values[ended ? known : at ?? last], now.spec.unit);
        say(output, ended ? `${value} at ${clock(times()[known], now.epoch)}` : value);
      });
    };
    const fill = () => {
      if (!details.open) return;
      head.replaceChildren(el("th", { scope: "col" }, "Time"),
        ...now.spec.lines.map(line => el("th", { scope: "col", class: "n" }, line.name)));
      // Some moments tell as much as all of them.
      const every = Math.max(1, Math.ceil(times().length / 30));
      rows.replaceChildren(...times().map((at, i) => [at, i]).filter(([, i]) => (times().length - 1 - i) % every === 0)
        .map(([at, i]) => el("tr", {}, el("th", { scope: "row" }, clock(at, now.epoch)),
          ...now.spec.lines.map(line => el("td", { class: "n" }, text(line.values[i], now.spec.unit))))));
    };
    details.addEventListener("toggle", fill);

    const data = () => {
      const { spec, epoch } = now;
      const x = epoch === null ? times() : times().map(at => at + epoch);
      if (!spec.stacked) return [x, ...spec.lines.map(line => line.values)];
      return [x, ...stack(spec.lines).reverse()];
    };
    const make = () => {
      const { spec, epoch } = now;
      const lines = spec.stacked ? [...spec.lines].reverse() : spec.lines;
      const series = lines.map(line => {
        // Another section of a report may have given the colours anew by the time that this is drawn.
        const own = colourOf(line, spec);
        const ink = () => colour(own);
        return spec.stacked
          ? { width: 0.5, stroke: () => colour("--paper"), fill: ink, paths: uPlot.paths.stepped({ align: -1 }), points: { show: false } }
          : { stroke: ink, width: 2, dash: DASHES[line.role], points: { size: 4, stroke: ink, fill: ink } };
      });
      const axis = { stroke: () => colour("--soft"), grid: { stroke: () => colour("--line"), width: 1 }, ticks: { stroke: () => colour("--line"), width: 1 }, font: "12px system-ui, sans-serif" };
      // How far a goal was missed is to be seen, however small that is beside all.
      const near = spec.unit === "share" && spec.lines.some(line => line.role === "goal");
      const range = (_, low, high) => {
        const top = Math.max(high ?? 0, spec.most ?? 0);
        const bottom = near && low !== null ? Math.max(0, low - (top - low) * 0.3 - 0.02) : 0;
        return [bottom, top > bottom ? top + (top - bottom) * 0.05 : bottom + 1];
      };
      const made = new uPlot({
        width: Math.max(Math.floor(canvas.clientWidth), 200),
        height: spec.stacked ? 160 : 190,
        legend: { show: false },
        cursor: { sync: { key: "time" }, drag: { x: false, y: false }, points: { show: !spec.stacked } },
        scales: {
          x: {
            time: epoch !== null,
            // All plots of a page are about the same time, whatever is known of it.
            range: () => {
              const ends = [now.history.at_s, times()].filter(all => all.length > 0).map(all => [all[0], all[all.length - 1]]);
              const low = Math.min(...ends.map(end => end[0])) + (epoch ?? 0);
              const high = Math.max(...ends.map(end => end[1])) + (epoch ?? 0);
              return [high - low > 1e-6 ? low : high - 1, high];
            },
          },
          y: { range },
        },
        axes: [
          {
            ...axis, space: (_, __, low, high) => (high - low > 180 ? 50 : 80),
            values: (plot, splits) => splits.map(at => {
              if (epoch === null) return `${+at.toPrecision(6)} s`;
              const wide = plot.scales.x.max - plot.scales.x.min > 180;
              return wide ? clock(at, 0).replace(/:\d\d$/, "") : clock(at, 0);
            }),
          },
          // As wide as its longest label.
          { ...axis, size: (_, labels) => Math.max(40, ...(labels ?? []).map(label => label.length * 7 + 18)), values: (_, splits) => splits.map(value => tick(value, spec.unit)) },
        ],
        series: [{}, ...series],
        hooks: { setCursor: [plot => tell(plot.cursor.idx)] },
      }, data(), canvas);
      made.root.setAttribute("aria-hidden", "true");
      return made;
    };
    const same = (one, other) => one.unit === other.unit && one.lines.length === other.lines.length
      && one.lines.every((line, i) => line.name === other.lines[i].name && line.role === other.lines[i].role);

    const draw = (spec, history, epoch) => {
      const before = now;
      now = { spec, history, epoch };
      whole.setAttribute("data-plot", spec.id);
      say(caption, spec.title);
      const own = spec.id.startsWith("p99-") ? "a plot" : "a line here";
      say(left, spec.left_out > 0 ? `${count(spec.left_out, "more service")} without ${own}.` : "");
      if (!plot || !same(before.spec, spec)) {
        if (plot) {
          drawn.delete(plot);
          plot.destroy();
        }
        const order = spec.lines.map(line => el("li", {},
          el("span", { class: `swatch ${line.role}`, "data-colour": colourOf(line, spec) }), `${line.name} `, el("output")));
        order.forEach(item => {
          const swatch = item.firstElementChild;
          swatch.style.setProperty("--swatch", `var(${swatch.dataset.colour})`);
        });
        key.replaceChildren(...order);
        plot = make();
        canvas.plot = plot;
        drawn.add(plot);
      } else {
        plot.setData(data());
      }
      tell(plot.cursor.idx);
      fill();
    };

    canvas.addEventListener("keydown", event => {
      const last = times().length - 1;
      const at = plot.cursor.idx ?? last;
      const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: last, PageUp: at - 20, PageDown: at + 20 }[event.key];
      if (to === undefined || last < 0) return;
      event.preventDefault();
      const next = Math.min(Math.max(to, 0), last);
      plot.setCursor({ left: plot.valToPos(plot.data[0][next], "x"), top: 10 });
      say(said, `${clock(times()[next], now.epoch)}: ${values(next).join(", ")}`);
    });
    resized.observe(canvas);
    const drop = () => {
      if (plot) {
        drawn.delete(plot);
        plot.destroy();
      }
      resized.unobserve(canvas);
      whole.remove();
    };
    return { whole, draw, drop };
  };

  // Draws all plots of a part of the page, where it stands; those that stay keep their place and the cursor.
  const plots = (into, history, part, epoch, none) => {
    paint(history);
    const known = into.figures ??= new Map();
    const wanted = history.plots.filter(plot => plot.part === part && plot.lines.length > 0 && (plot.at_s ?? history.at_s).length > 0);
    for (const [id, figure] of known) {
      if (!wanted.some(plot => plot.id === id)) {
        figure.drop();
        known.delete(id);
      }
    }
    const empty = into.querySelector(":scope > .none");
    if (wanted.length === 0) {
      if (empty) say(empty, none);
      else into.append(el("p", { class: "none soft" }, none));
      return;
    }
    empty?.remove();
    for (const spec of wanted) {
      if (!known.has(spec.id)) {
        const made = figure(spec, history, epoch);
        known.set(spec.id, made);
        into.append(made.whole);
      }
      known.get(spec.id).draw(spec, history, epoch);
    }
  };

  // ---- services ----

  const misses = service => service.verdict === "missed";
  // The sentence as everywhere; of a service without a goal, how long it waits.
  const verdict = service => {
    if (service.judgement) return service.judgement;
    return service.throttled !== null ? `throttled ${text(service.throttled, "share")}` : "";
  };
  // A value of what a service does, in its own unit.
  const measured = (service, value) => {
    if (!service.measured || value(service.measured) === null) return NONE;
    const { unit } = service.measured;
    const known = unit === "seconds" || unit === "bytes_per_s";
    return known ? text(value(service.measured), unit) : `${text(value(service.measured), "")}${unit}`;
  };
  const ago = seconds => (seconds < 90 ? `${seconds.toFixed(0)} s ago` : seconds < 5400 ? `${(seconds / 60).toFixed(0)} min ago` : `${(seconds / 3600).toFixed(1)} h ago`);
  const alone = service => {
    const { alone_interval: interval, alone_age_s: age } = service.measured;
    const ends = interval && interval.map(end => measured(service, () => end)).join(" to ");
    const more = [ends && `95 % ${ends} by block bootstrap`, age !== null && `measured ${ago(age)}`].filter(Boolean).join(", ");
    return `${measured(service, it => it.alone)}${more && ` (${more})`}`;
  };
  const within = ({ share, requests, seconds }) => `${(share * 100).toFixed(2)} % of ${requests ? "requests" : "seconds"} in the last ${ago(seconds).replace(" ago", "")}`;
  const cells = service => [
    verdict(service),
    service.paused ? "left alone" : service.class,
    service.within_goal ? percent(service.within_goal.share) : NONE,
    measured(service, it => it.now),
    measured(service, it => it.alone),
    measured(service, it => it.goal),
    service.measured?.what ?? "nothing",
    service.cpus === null ? NONE : service.cpus.toFixed(2),
    service.waiting === null ? NONE : service.waiting.toFixed(2),
    service.policy,
    service.rule,
  ];
  const HEADS = [["verdict, or throttled", ""], ["class", ""], ["within goal, last hour", "n"], ["now", "n"], ["alone", "n wide"], ["at goal", "n wide"], ["measured by", "wide"], ["CPUs", "n"], ["waits", "n"], ["policy", "wide"], ["rule", "wide"]];
  const CLASSES = ["high", "low", "normal", "ignore"];

  /** Where it ran: on CPUs, and the time of threads that moved. */
  const on = service => {
    const places = service.places.filter(place => place.cpus > 0).map(place => `CPU ${place.cpu}: ${place.cpus.toFixed(2)}`);
    const moved = (service.moved ?? []).reduce((sum, moved) => sum + moved.cpus, 0);
    return [...places, ...(moved > 0 ? [`moved: ${moved.toFixed(2)}`] : [])].join(", ") || NONE;
  };
  const details = (service, picture) => {
    const facts = [
      service.judgement ? ["Verdict", service.judgement] : null,
      ["Uses", `${service.cpus === null ? NONE : service.cpus.toFixed(2)} CPUs with ${count(service.threads, "thread")} of ${count(service.processes, "process")}`],
      ["On", on(service)],
      service.waiting ? ["Waits for a CPU", `${service.waiting.toFixed(2)} threads${service.behind?.length ? `: ${causes(service.behind)}` : ""}`] : null,
      ["Managed by", service.paused ? "no rule: left alone until cotenant resume" : [service.rule && `rule ${service.rule}`, service.policy && `policy ${service.policy}`].filter(Boolean).join(", ") || NONE],
      ["Does", service.measured ? `${service.measured.what} ${measured(service, it => it.now)} in the last 10 s` : "not known"],
      service.measured?.alone ? ["Alone", alone(service)] : null,
      service.measured?.goal ? ["At the goal", measured(service, it => it.goal)] : null,
      service.metric_error ? ["Unknown", service.metric_error] : null,
      service.within_goal ? ["Within the goal", within(service.within_goal)] : null,
      service.latencies.length === 0 ? null : ["Latencies", service.latencies.map(latency => `p${latency.quantile * 100} ${text(latency.seconds, "seconds")}`).join(", ")],
      ...picture.facts.map(({ key, unit, label, behind }) => service[key] === null ? null : [label, text(service[key], unit) + behind]),
    ].filter(fact => fact !== null);
    const threads = service.busiest.map(thread => el("tr", {},
      el("th", { scope: "row" }, thread.name), el("td", { class: "n" }, String(thread.tid)),
      el("td", { class: "n" }, thread.cpu === null ? NONE : String(thread.cpu)), el("td", { class: "n" }, thread.cpus.toFixed(2)),
      el("td", {}, String(thread.allowed))));
    return [
      el("dl", {}, facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))),
      threads.length === 0 ? null : el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `Threads of ${service.name}` }, el("table", {},
        el("caption", {}, service.busiest.length < service.threads ? "Its busiest threads" : "Its threads"),
        el("thead", {}, el("tr", {}, ["Thread", "#id", "#on CPU", "#CPUs", "may use"].map(head =>
          el("th", { scope: "col", class: head.startsWith("#") && "n" }, head.replace("#", ""))))),
        el("tbody", {}, threads))),
    ];
  };

  // A table of services; rows stay where they are, so that a reader keeps the place.
  const services = (into, picture) => {
    if (!into.list) {
      const body = el("tbody");
      const search = el("input", { type: "search", id: "filter", on: { input: () => services(into, into.list.picture) } });
      const panel = el("section", { class: "panel", "aria-label": "Details", hidden: true });
      const table = el("table", { class: "services" },
        el("caption", { class: "aside" }, "Services"),
        el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "service"), HEADS.map(([head, kind]) => el("th", { scope: "col", class: kind }, head)))), body);
      const said = el("p", { class: "soft" });
      into.append(
        el("p", { class: "find" }, el("label", { for: "filter" }, "Find "), search),
        el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Services" }, table), said, panel);
      into.list = { body, search, panel, said, rows: new Map(), chosen: null, picture };
    }
    const { body, search, panel, said, rows } = into.list;
    into.list.picture = picture;
    const wanted = search.value.toLowerCase();
    const rank = service => (service.class === "high" ? 2 : service.class === "low" ? 1 : 0);
    const step = service => Math.round((service.cpus ?? 0) * 20);
    const listed = picture.services
      .filter(service => [service.name, service.rule, service.class, service.policy].some(word => word.toLowerCase().includes(wanted)))
      .sort((a, b) => rank(b) - rank(a) || step(b) - step(a) || (a.name < b.name ? -1 : 1));
    const choose = name => {
      into.list.chosen = into.list.chosen === name ? null : name;
      services(into, into.list.picture);
    };
    for (const [name, row] of rows) {
      if (!listed.some(service => service.name === name)) {
        row.remove();
        rows.delete(name);
      }
    }
    listed.forEach((service, i) => {
      let row = rows.get(service.name);
      if (!row) {
        const button = el("button", { type: "button", class: "link", on: { click: () => choose(service.name) } }, service.name);
        row = el("tr", {}, el("th", { scope: "row" }, button), HEADS.map(([, kind]) => el("td", { class: kind })));
        rows.set(service.name, row);
      }
      // To move an element takes the focus from it: only where it stands elsewhere.
      if (body.children[i] !== row) body.insertBefore(row, body.children[i] ?? null);
      cells(service).forEach((cell, k) => say(row.children[k + 1], cell));
      const kind = CLASSES.includes(service.class) ? service.class : "normal";
      row.children[2].className = `class ${kind}`;
      row.children[1].classList.toggle("missed", misses(service));
      row.firstElementChild.firstElementChild.setAttribute("aria-expanded", String(into.list.chosen === service.name));
    });
    const hidden = picture.left_out ?? 0;
    say(said, picture.services.length === 0 ? "No service that the rules name runs now."
      : listed.length === 0 ? "No service has that in its name, class, rule or policy."
      : hidden > 0 ? `${count(hidden, "more service")} ${hidden === 1 ? "runs" : "run"}; cotenant top lists all.` : "");
    const chosen = picture.services.find(service => service.name === into.list.chosen);
    panel.hidden = !chosen;
    if (chosen) panel.replaceChildren(el("h3", {}, chosen.name), ...details(chosen, picture).filter(Boolean));
  };

  // ---- the machine ----

  // Each CPU in a cell, with how busy it is and whose most of it is.
  const machine = (into, picture) => {
    if (!into.cells) {
      const cells = el("div", { class: "domains" });
      into.append(el("h3", {}, "Now"), cells);
      into.cells = { cells, shape: "" };
    }
    const domains = picture.packages.flatMap((pack, p) => pack.domains.map((domain, d) => [p, d, domain.cores.flatMap(core => core.cpus)]));
    const shape = JSON.stringify(domains.map(([p, , cpus]) => [p, cpus.map(cpu => cpu.cpu)]));
    const { cells } = into.cells;
    if (shape !== into.cells.shape) {
      into.cells.shape = shape;
      cells.replaceChildren(...domains.map(([p, , cpus], i) => el("div", { class: "domain" },
        el("h4", {}, picture.packages.length > 1 ? `Cache domain ${i} (package ${p})` : `Cache domain ${i}`),
        el("ul", { class: "cpus" }, cpus.map(() => el("li", {}, el("span", { class: "cpu" }), el("span", { class: "load", "aria-hidden": "true" }, el("span")), el("span", { class: "whose" })))))));
    }
    domains.forEach(([, , cpus], i) => cpus.forEach((cpu, k) => {
      const [name, load, whose] = cells.children[i].lastElementChild.children[k].children;
      say(name, `CPU ${cpu.cpu}: ${cpu.busy === null ? NONE : `${Math.round(cpu.busy * 100)} %`}`);
      load.firstElementChild.style.width = `${Math.round((cpu.busy ?? 0) * 100)}%`;
      say(whose, picture.whose[cpu.cpu] ?? "");
    }));
  };

  // ---- tables that are made anew where they have changed ----

  const changed = (into, value) => {
    const now = JSON.stringify(value);
    if (into.shown === now) return false;
    into.shown = now;
    return true;
  };
  const keepFirst = into => [...into.children].filter(child => /^H[1-6]$/.test(child.tagName));

  // The parts of a wait by what had the CPU, as one line.
  const causes = parts => parts.map(part => `${part.threads.toFixed(2)} behind ${part.what}`).join(", ");
  const waits = (into, all) => {
    const waiting = all.filter(service => service.waiting >= 0.01)
      .sort((a, b) => (b.class === "high") - (a.class === "high") || b.waiting - a.waiting)
      .map(service => [service.name, service.waiting.toFixed(2), causes(service.behind ?? []) || "not seen: cotenant doctor says why"]);
    if (!changed(into, waiting)) return;
    if (waiting.length === 0) {
      into.replaceChildren(el("p", { class: "soft" }, "No service waits for a CPU."));
      return;
    }
    into.replaceChildren(el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Waits for a CPU" },
      el("table", {}, el("caption", {}, "Threads that were ready to run and had no CPU, on average over the last second, and what had it"),
        el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "service"), el("th", { scope: "col", class: "n" }, "threads"), el("th", { scope: "col" }, "behind what"))),
        el("tbody", {}, waiting.map(([name, threads, behind]) =>
          el("tr", {}, el("th", { scope: "row" }, name), el("td", { class: "n" }, threads), el("td", {}, behind)))))));
  };

  const loss = row => `${percent(row.loss)} (${percent(row.low)} to ${percent(row.high)}), ${count(row.events, "event")}`;
  const hurts = (into, rows) => {
    if (!changed(into, rows)) return;
    if (rows.length === 0) {
      into.replaceChildren(...keepFirst(into), el("p", { class: "soft" }, "No loss of 1 % or more is beyond doubt."));
      return;
    }
    const victims = [...new Set(rows.map(row => row.victim))];
    const aggressors = [...new Set(rows.map(row => row.aggressor))];
    const cell = row => {
      const made = el("td", { class: row ? "loss" : "" }, row ? loss(row) : NONE);
      if (row) made.style.setProperty("--loss", `${Math.round(Math.min(Math.max(row.loss, 0), 1) * 40)}%`);
      return made;
    };
    const find = (victim, aggressor) => rows.find(row => row.victim === victim && row.aggressor === aggressor);
    const few = aggressors.length <= 8;
    const heads = few ? ["victim", ...aggressors.map(name => `while ${name} runs`)] : ["victim", "aggressor", "loss"];
    const body = few
      ? victims.map(victim => el("tr", {}, el("th", { scope: "row" }, victim), aggressors.map(name => cell(find(victim, name)))))
      : rows.map(row => el("tr", {}, el("th", { scope: "row" }, row.victim), el("td", {}, row.aggressor), cell(row)));
    into.replaceChildren(...keepFirst(into), el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Interference" },
      el("table", { class: "matrix" }, el("caption", {}, "Share of its speed that a service loses while another one runs, with 95 % intervals"),
        el("thead", {}, el("tr", {}, heads.map(head => el("th", { scope: "col" }, head)))), el("tbody", {}, body))));
  };

  const trials = (into, all, epoch) => {
    if (!changed(into, all)) return;
    if (all.length === 0) {
      into.replaceChildren(...keepFirst(into), el("p", { class: "soft" }, "No placement was tried lately. Rules with the policy auto or shapes try some."));
      return;
    }
    const ends = all.flatMap(trial => trial.interval ?? [trial.gain]).concat(0);
    const [low, high] = [Math.min(...ends), Math.max(...ends)];
    const at = value => (high > low ? Math.min(Math.max((value - low) / (high - low), 0), 1) * 100 : 50);
    const bar = trial => {
      const [from, to] = trial.interval ?? [trial.gain, trial.gain];
      const line = el("span", { class: "line" });
      const dot = el("span", { class: "dot" });
      const zero = el("span", { class: "zero" });
      [line.style.left, line.style.width] = [`${at(from)}%`, `${at(to) - at(from)}%`];
      [dot.style.left, zero.style.left] = [`${at(trial.gain)}%`, `${at(0)}%`];
      return el("span", { class: "interval", "aria-hidden": "true" }, zero, line, dot);
    };
    const gain = trial => trial.interval
      ? `${signed(trial.gain)} (${signed(trial.interval[0])} to ${signed(trial.interval[1])})` : `${signed(trial.gain)} at a glance`;
    const rows = [...all].reverse().map(trial => el("tr", { class: trial.kept && "kept" },
      el("th", { scope: "row" }, clock(trial.at_s, epoch)), el("td", {}, trial.shape), el("td", {}, gain(trial), bar(trial)),
      el("td", { class: "n" }, String(trial.pairs)), el("td", {}, trial.kept ? "kept" : "not kept")));
    into.replaceChildren(...keepFirst(into), el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Trials" },
      el("table", { class: "trials" }, el("caption", {}, "What was tried, against what stood then: threads of each program by cache domain; faster is more"),
        el("thead", {}, el("tr", {}, ["at", "placement", "faster by", "pairs of windows", ""].map((head, i) =>
          el("th", { scope: "col", class: i === 3 && "n" }, head || el("span", { class: "aside" }, "outcome"))))), el("tbody", {}, rows))));
  };

  const UNITS = { per_cycle: "per cycle", per_second: "per second", per_instruction: "per instruction", fraction: "" };
  const why = decision => {
    const all = decision.why;
    if (!all) return [["Decided", decision.what]];
    const evidence = all.evidence;
    const unit = evidence && UNITS[evidence.unit] !== undefined ? UNITS[evidence.unit] : "";
    return [
      ["Ordered", all.to],
      all.thread === null ? null : ["Thread", `${all.thread}, ${all.from_cpu === null ? "not known where it ran" : `ran on CPU ${all.from_cpu}`}`],
      all.may_use === null ? null : ["May use", `CPUs ${all.may_use}`],
      evidence ? ["Measured", `${evidence.signal} ${Number(evidence.value).toPrecision(4)} ${unit}, held against ${Number(evidence.threshold).toPrecision(4)}`] : null,
      ["Reason", all.text],
      ["Decided by", `policy ${all.policy}, its part ${all.stage}`],
      ["By means of", all.means],
      ["Outcome", decision.outcome === null ? "carried out" : decision.outcome],
    ].filter(fact => fact !== null);
  };
  // Each opens to all of why. Those that stay keep whether they are open, and the focus.
  const decisions = (into, all, epoch) => {
    if (!into.items) {
      const list = el("ol", { class: "decisions", reversed: true });
      const none = el("p", { class: "soft" }, "Nothing was decided lately.");
      into.append(none, list);
      into.items = { list, none, known: new Map() };
    }
    const { list, none, known } = into.items;
    none.hidden = all.length > 0;
    const seen = new Map();
    const keyed = [...all].map(decision => {
      const same = `${decision.at_s}|${decision.service}|${decision.what}`;
      seen.set(same, (seen.get(same) ?? 0) + 1);
      return [`${same}|${seen.get(same)}`, decision];
    }).reverse();
    for (const [key, item] of known) {
      if (!keyed.some(([other]) => other === key)) {
        item.remove();
        known.delete(key);
      }
    }
    keyed.forEach(([key, decision], i) => {
      let item = known.get(key);
      if (!item) {
        const to = decision.why ? `${decision.why.thread ? `${decision.why.thread} → ` : ""}${decision.why.to}` : decision.what;
        item = el("li", {}, el("details", {},
          el("summary", {}, el("time", {}, clock(decision.at_s, epoch)), " ", el("b", {}, decision.service || "–"), `: ${to}`,
            decision.outcome === null ? null : el("em", {}, ` (${decision.outcome})`)),
          el("dl", {}, why(decision).map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))))));
        known.set(key, item);
      }
      if (list.children[i] !== item) list.insertBefore(item, list.children[i] ?? null);
    });
  };

  const notes = (into, all) => {
    into.hidden = all.length === 0;
    if (changed(into, all)) into.replaceChildren(el("ul", { class: "notes" }, all.map(note => el("li", {}, note))));
  };

  return { el, say, plots, services, machine, waits, hurts, trials, decisions, notes, count };
})();
