// SPDX-License-Identifier: GPL-2.0-only
// Curves and timeline of a report. The data is JSON in the element "data"; everything else on the page is there without this.
"use strict";
(function () {
  const data = JSON.parse(document.getElementById("data").textContent);
  const SVG = "http://www.w3.org/2000/svg";

  function el(name, attributes, text) {
    const node = document.createElement(name);
    for (const key in attributes) node.setAttribute(key, attributes[key]);
    if (text !== undefined) node.textContent = text;
    return node;
  }
  function svg(name, attributes, text) {
    const node = document.createElementNS(SVG, name);
    for (const key in attributes) node.setAttribute(key, attributes[key]);
    if (text !== undefined) node.textContent = text;
    return node;
  }
  const colour = (i) => data.colours[i % data.colours.length];
  function us(v) {
    return v >= 1e6 ? (v / 1e6).toFixed(2) + " s" : v >= 1000 ? (v / 1000).toFixed(2) + " ms" : v.toFixed(v < 10 ? 2 : 1) + " us";
  }
  // "p" of a place on the axis: x is log10 of 1 in how many.
  function percent(x) {
    const beyond = Math.pow(10, -x);
    return (100 * (1 - beyond)).toFixed(Math.max(0, Math.ceil(x) - 1)).replace(/^100(\.0+)?$/, "100");
  }

  // Latency over percentile: a point is [log10(1 / (1 - p)), microseconds].
  function curves(place, chart) {
    const W = 900, H = 340, L = 70, R = 15, T = 10, B = 40;
    let log = true;
    const box = el("div", {});
    const tools = el("div", { class: "tools" });
    const legend = el("div", { class: "legend" });
    const readout = el("div", { class: "readout dim" }, "Move over the curves for values.");
    const button = el("button", { type: "button" }, "linear scale");
    tools.append(el("strong", {}, chart.title), button);
    chart.lines.forEach((line) => {
      const item = el("span", {}), mark = el("i", {});
      mark.style.background = colour(line.policy);
      item.append(mark, data.policies[line.policy]);
      legend.append(item);
    });
    const holder = el("div", {});
    box.append(tools, legend, holder, readout);
    place.append(box);

    const all = chart.lines.flatMap((line) => line.points);
    if (all.length === 0) return;
    const xMax = Math.max(1, ...all.map((p) => p[0]));
    const yMax = Math.max(...all.map((p) => p[1]), 0.001);
    const yMin = Math.max(0.01, Math.min(...all.map((p) => p[1])));
    const X = (x) => L + (x / xMax) * (W - L - R);
    const Y = (y) => {
      const part = log
        ? Math.log(Math.max(y, yMin) / yMin) / Math.max(1e-9, Math.log(yMax / yMin))
        : y / yMax;
      return H - B - part * (H - B - T);
    };
    function ticks() {
      if (!log) return [0, 0.25, 0.5, 0.75, 1].map((part) => part * yMax);
      const out = [];
      for (let d = Math.floor(Math.log10(yMin)); Math.pow(10, d) <= yMax; d++) {
        for (const m of [1, 3]) {
          const v = m * Math.pow(10, d);
          if (v >= yMin && v <= yMax) out.push(v);
        }
      }
      return out;
    }
    function draw() {
      const picture = svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": chart.title });
      for (const v of ticks()) {
        picture.append(svg("line", { class: "grid", x1: L, x2: W - R, y1: Y(v), y2: Y(v) }));
        picture.append(svg("text", { x: L - 6, y: Y(v) + 4, "text-anchor": "end" }, us(v)));
      }
      for (const x of [0, 1, 2, 3, 4, 5, 6].filter((x) => x <= xMax)) {
        picture.append(svg("line", { class: "grid", x1: X(x), x2: X(x), y1: T, y2: H - B }));
        picture.append(svg("text", { x: X(x), y: H - B + 18, "text-anchor": "middle" }, "p" + percent(x)));
      }
      chart.lines.forEach((line) => {
        const points = line.points.map((p) => X(p[0]).toFixed(1) + "," + Y(p[1]).toFixed(1)).join(" ");
        picture.append(svg("polyline", { class: "curve", stroke: colour(line.policy), points }));
      });
      const rule = svg("line", { class: "grid", y1: T, y2: H - B, x1: -9, x2: -9, stroke: "currentColor" });
      picture.append(rule);
      picture.addEventListener("pointermove", (event) => {
        const area = picture.getBoundingClientRect();
        const x = Math.min(xMax, Math.max(0, (((event.clientX - area.left) / area.width) * W - L) / (W - L - R) * xMax));
        rule.setAttribute("x1", X(x));
        rule.setAttribute("x2", X(x));
        const values = chart.lines.map((line) => {
          const point = line.points.find((p) => p[0] >= x) || line.points[line.points.length - 1];
          return point ? data.policies[line.policy] + " " + us(point[1]) : "";
        });
        readout.textContent = "p" + percent(x) + ": " + values.filter((v) => v).join("   ");
      });
      holder.replaceChildren(picture);
    }
    button.addEventListener("click", () => {
      log = !log;
      button.textContent = log ? "linear scale" : "logarithmic scale";
      draw();
    });
    draw();
  }

  // CPU lanes. A span: [cpu, start us, length us, group, task, waited us, warmth %, refill us, reason, from CPU, read us, decided us].
  const CPU = 0, START = 1, LENGTH = 2, GROUP = 3, TASK = 4, WAITED = 5, WARMTH = 6, REFILL = 7, WHY = 8, FROM = 9, READ = 10, DECIDED = 11;
  function timeline(place, all) {
    const canvas = el("canvas", { tabindex: "0", "aria-label": "CPU lanes" });
    const tools = el("div", { class: "tools" });
    const select = el("select", { "aria-label": "policy" });
    all.forEach((t, i) => select.append(el("option", { value: i }, t.policy)));
    const button = (text, act) => {
      const b = el("button", { type: "button" }, text);
      b.addEventListener("click", act);
      return b;
    };
    const hint = el("span", { class: "readout dim" });
    const details = el("div", {});
    tools.append(select, button("+", () => zoom(0.5, 0.5)), button("-", () => zoom(2, 0.5)), button("all", () => reset()), hint);
    place.append(tools, canvas, details);
    const pen = canvas.getContext("2d");
    const LEFT = 52, TOP = 22;
    let shown, lanes, from, to, picked = null, laneHeight = 12, width = 300, height = 100;

    function choose(i) {
      shown = all[i];
      lanes = Array.from({ length: shown.cpus }, () => []);
      shown.spans.forEach((s) => lanes[s[CPU]] && lanes[s[CPU]].push(s));
      lanes.forEach((lane) => lane.sort((a, b) => a[START] - b[START]));
      picked = null;
      details.replaceChildren();
      reset();
    }
    function reset() {
      from = shown.from_us;
      to = shown.to_us;
      draw();
    }
    function zoom(by, at) {
      const middle = from + (to - from) * at;
      const whole = shown.to_us - shown.from_us;
      const span = Math.min(whole, Math.max(1, (to - from) * by));
      from = Math.min(shown.to_us - span, Math.max(shown.from_us, middle - span * at));
      to = from + span;
      draw();
    }
    function pan(by) {
      const span = to - from;
      from = Math.min(shown.to_us - span, Math.max(shown.from_us, from + by));
      to = from + span;
      draw();
    }
    const X = (t) => LEFT + ((t - from) / (to - from)) * (width - LEFT);
    const when = (x) => from + ((x - LEFT) / (width - LEFT)) * (to - from);
    function first(lane) {
      let low = 0, high = lane.length;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (lane[middle][START] + lane[middle][LENGTH] < from) low = middle + 1;
        else high = middle;
      }
      return low;
    }
    const warm = (pct) => `hsl(${(215 + 1.4 * pct) % 360} 70% 52%)`;

    function draw() {
      const ratio = window.devicePixelRatio || 1;
      width = canvas.clientWidth || 300;
      laneHeight = Math.max(4, Math.min(18, Math.floor(760 / shown.cpus)));
      height = TOP + laneHeight * shown.cpus + 4;
      canvas.style.height = height + "px";
      canvas.width = width * ratio;
      canvas.height = height * ratio;
      pen.setTransform(ratio, 0, 0, ratio, 0, 0);
      pen.clearRect(0, 0, width, height);
      const style = getComputedStyle(document.body);
      pen.font = "11px system-ui, sans-serif";
      pen.fillStyle = style.color;
      for (let i = 0; i <= 4; i++) {
        const t = from + ((to - from) * i) / 4;
        pen.textAlign = i === 4 ? "right" : "left";
        pen.fillText((t / 1000).toFixed(to - from < 2000 ? 3 : 1) + " ms", X(t), 12);
      }
      pen.textAlign = "left";
      const every = Math.ceil(11 / laneHeight);
      for (let cpu = 0; cpu < shown.cpus; cpu++) {
        const y = TOP + cpu * laneHeight;
        if (cpu % every === 0) {
          pen.fillStyle = style.color;
          pen.fillText("CPU " + cpu, 2, y + Math.min(laneHeight, 10));
        }
        if (shown.llcs.includes(cpu) && cpu > 0) {
          pen.fillStyle = "rgba(128,128,128,.8)";
          pen.fillRect(LEFT, y - 1, width - LEFT, 1);
        }
        const lane = lanes[cpu];
        for (let i = first(lane); i < lane.length && lane[i][START] < to; i++) {
          const s = lane[i], x = Math.max(LEFT, X(s[START]));
          pen.fillStyle = s === picked ? style.color : warm(s[WARMTH]);
          pen.fillRect(x, y + 1, Math.max(0.6, Math.min(width, X(s[START] + s[LENGTH])) - x - 0.3), laneHeight - 2);
        }
      }
      for (const [cpu, start, end] of shown.held) {
        pen.fillStyle = "rgba(120,120,120,.85)";
        const x = Math.max(LEFT, X(start));
        pen.fillRect(x, TOP + cpu * laneHeight + 1, Math.max(1, X(end) - x), laneHeight - 2);
      }
      for (const [start, end] of shown.takeovers) {
        pen.fillStyle = "rgba(230,160,0,.25)";
        const x = Math.max(LEFT, X(start));
        pen.fillRect(x, 14, Math.max(1, X(end) - x), height - 14);
      }
    }
    function at(event) {
      const area = canvas.getBoundingClientRect();
      const x = event.clientX - area.left, y = event.clientY - area.top;
      const cpu = Math.floor((y - TOP) / laneHeight);
      if (x < LEFT || !lanes[cpu]) return null;
      const t = when(x), slack = ((to - from) / (width - LEFT)) * 2;
      return lanes[cpu].find((s) => t >= s[START] - slack && t <= s[START] + s[LENGTH] + slack) || null;
    }
    const name = (s) => shown.groups[s[GROUP]] + "/" + s[TASK];
    function brief(s) {
      return `${name(s)} on CPU ${s[CPU]}: waited ${us(s[WAITED])}, warmth ${s[WARMTH]} %, refill ${us(s[REFILL])}; ${shown.reasons[s[WHY]]}`;
    }
    function show(s) {
      picked = s;
      const list = el("dl", {});
      const row = (key, value) => list.append(el("dt", {}, key), el("dd", {}, value));
      row("task", name(s));
      row("ran", `on CPU ${s[CPU]} from ${(s[START] / 1000).toFixed(4)} ms for ${us(s[LENGTH])}`);
      if (s[FROM] >= 0) row("before", s[FROM] === s[CPU] ? "on the same CPU" : `on CPU ${s[FROM]}`);
      row("why", shown.reasons[s[WHY]]);
      row("waited", us(s[WAITED]));
      row("warmth", `${s[WARMTH]} % of its state was there; refill took ${us(s[REFILL])}`);
      if (s[READ] >= 0) row("decided", `read at ${(s[READ] / 1000).toFixed(4)} ms, decided at ${(s[DECIDED] / 1000).toFixed(4)} ms`);
      details.replaceChildren(list);
      draw();
    }
    let drag = null;
    canvas.addEventListener("pointerdown", (event) => {
      drag = { x: event.clientX, moved: false };
      if (canvas.setPointerCapture) canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (drag) {
        const by = event.clientX - drag.x;
        if (Math.abs(by) > 2) drag.moved = true;
        if (drag.moved) {
          pan((-by / (width - LEFT)) * (to - from));
          drag.x = event.clientX;
        }
        return;
      }
      const s = at(event);
      hint.textContent = s ? brief(s) : "";
    });
    canvas.addEventListener("pointerup", (event) => {
      if (drag && !drag.moved) {
        const s = at(event);
        if (s) show(s);
      }
      drag = null;
    });
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const area = canvas.getBoundingClientRect();
      const part = Math.min(1, Math.max(0, (event.clientX - area.left - LEFT) / (width - LEFT)));
      if (event.shiftKey) pan((event.deltaY / 500) * (to - from));
      else zoom(event.deltaY > 0 ? 1.25 : 0.8, part);
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => {
      const act = { ArrowLeft: () => pan(-(to - from) / 8), ArrowRight: () => pan((to - from) / 8), "+": () => zoom(0.5, 0.5), "-": () => zoom(2, 0.5) }[event.key];
      if (act) {
        event.preventDefault();
        act();
      }
    });
    select.addEventListener("change", () => choose(Number(select.value)));
    window.addEventListener("resize", draw);
    choose(0);
  }

  const charts = document.getElementById("curves");
  if (charts) data.charts.forEach((chart) => curves(charts, chart));
  const lanes = document.getElementById("timeline");
  if (lanes && data.timelines.length > 0) timeline(lanes, data.timelines);
})();
