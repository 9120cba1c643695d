"use strict";
(() => {
const data = JSON.parse(document.getElementById("data").textContent);
const $ = id => document.getElementById(id);
const EXPOSED = 3, SKEW = 4, OTHER = 9, GUTTER = 118, MAIN = 26;
const msPer = data.unit / 1e6;

// Unpack: of each rank its rows, of each row flat arrays of disjoint boxes.
const ranks = data.ranks.map(k => {
  const n = k.rows.reduce((a, b) => a + b, 0), rows = Array.from({ length: n }, () => []);
  for (let i = 0, begin = 0; i < k.items.length; i += 7) {
    begin += k.items[i + 4];
    rows[k.items[i + 1]].push([begin, begin + k.items[i + 5], k.items[i], k.items[i + 2], k.items[i + 3], k.items[i + 6]]);
  }
  return {
    rank: k.rank, host: k.host, tracks: k.rows, periods: k.periods,
    rows: rows.map(r => {
      r.sort((a, b) => a[0] - b[0]);
      return {
        n: r.length, begin: Float64Array.from(r, b => b[0]), end: Float64Array.from(r, b => b[1]), cls: Uint8Array.from(r, b => b[2]),
        name: Int32Array.from(r, b => b[3]), iter: Int32Array.from(r, b => b[4]), bytes: Float64Array.from(r, b => b[5]),
      };
    }),
  };
});

// Where everything lies; lanes of collectives are lower where there are many.
let height = 8;
for (const k of ranks) {
  k.top = height;
  k.y = [height]; k.h = [MAIN];
  height += MAIN;
  for (let t = 1; t < k.tracks.length; t++) {
    const n = k.tracks[t], h = Math.max(2, Math.min(13, 56 / Math.max(n, 1)));
    if (n) height += 4;
    for (let i = 0; i < n; i++) { k.y.push(height); k.h.push(h > 4 ? h - 1 : h); height += h; }
  }
  k.bottom = height;
  height += 16;
}

const axis = $("axis"), canvas = $("timeline"), overview = $("overview"), tip = $("tip");
let colour = {}, hatch = null, width = 800, from = 0, to = Math.max(data.length, 1), hover = null, at = 0;

function colours() {
  const s = getComputedStyle(document.documentElement);
  colour = {};
  for (const v of ["paper", "card", "ink", "soft", "rule", "faint", "path", "in", "onskew"]) colour[v] = s.getPropertyValue("--" + v).trim();
  colour.k = data.classes.map((_, i) => s.getPropertyValue("--k" + i).trim());
  const p = document.createElement("canvas");
  p.width = p.height = 6;
  const g = p.getContext("2d");
  g.fillStyle = colour.k[SKEW]; g.fillRect(0, 0, 6, 6);
  g.globalAlpha = 0.7; g.strokeStyle = colour.k[EXPOSED]; g.lineWidth = 1;
  g.beginPath();
  for (const d of [-6, 0, 6]) { g.moveTo(d - 1, 7); g.lineTo(d + 7, -1); }
  g.stroke();
  hatch = g.createPattern(p, "repeat");
}

function context(c, h) {
  const r = window.devicePixelRatio || 1;
  const w = c.clientWidth || c.parentElement.clientWidth;
  c.width = Math.round(w * r); c.height = Math.round(h * r); c.style.height = h + "px";
  const g = c.getContext("2d");
  g.setTransform(r, 0, 0, r, 0, 0);
  return [g, w];
}

const font = (px, bold) => (bold ? "600 " : "") + px + "px system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";
const x = t => GUTTER + (t - from) / (to - from) * (width - GUTTER);
const time = px => from + (px - GUTTER) / (width - GUTTER) * (to - from);
const ms = (t, digits = 3) => (t * msPer).toFixed(digits);

function nice(all, ticks) {
  const least = all / ticks, unit = 10 ** Math.floor(Math.log10(least));
  return unit * ([1, 2, 5].find(m => unit * m >= least) || 10);
}

// first returns the first box of a row that ends after t.
function first(row, t) {
  let a = 0, b = row.n;
  while (a < b) { const m = (a + b) >> 1; if (row.end[m] > t) b = m; else a = m + 1; }
  return a;
}

function same(row, i) {
  return hover && hover.cls === row.cls[i] && hover.cls >= 10 && hover.cls < 12 && hover.name === row.name[i] && hover.iter === row.iter[i];
}

function drawRow(g, k, r) {
  const row = k.rows[r], y = k.y[r], h = k.h[r];
  g.font = font(h > 20 ? 12 : 9);
  g.textBaseline = "middle"; g.textAlign = "center";
  for (let i = first(row, from); i < row.n && row.begin[i] < to; i++) {
    const a = Math.max(x(row.begin[i]), GUTTER), b = Math.min(x(row.end[i]), width), c = row.cls[i];
    let w = b - a;
    g.fillStyle = c === SKEW && w > 3 ? hatch : colour.k[c];
    if (c === EXPOSED || c === SKEW) w = Math.max(w, 0.5);
    const gap = w > 4 ? 0.8 : 0;
    g.fillRect(a, y, w - gap, h);
    if (c === EXPOSED && w > 2) { g.fillRect(a, y - 3, w - gap, 3); }
    if (same(row, i)) { g.strokeStyle = colour.path; g.lineWidth = 2; g.strokeRect(a, y, Math.max(w - gap, 1), h); }
    if (w < 22 || h < 8) continue;
    const name = data.names[row.name[i]], kind = data.classes[c];
    const full = c === EXPOSED || c === SKEW ? (kind + " " + name).trim() : name || kind;
    for (const words of [full, name, kind]) {
      if (!words || g.measureText(words).width + 6 > w) continue;
      g.fillStyle = c === SKEW ? colour.onskew : colour.in;
      g.fillText(words, a + w / 2, y + h / 2 + 0.5);
      break;
    }
  }
}

function drawPath(g) {
  const p = data.path;
  let begun = false, jumps = 0;
  for (let i = 0; i < p.length; i += 3) if (p[i + 1] <= to && p[i + 2] >= from) jumps++;
  const dense = jumps > (width - GUTTER) / 40; // the lines between ranks would hide what they cross
  g.strokeStyle = colour.path; g.lineWidth = dense ? 1 : 2; g.globalAlpha = dense ? 0.35 : 1;
  g.beginPath();
  for (let i = 0; i < p.length; i += 3) {
    if (p[i + 1] > to || p[i + 2] < from) { begun = false; continue; }
    const y = ranks[p[i]].top + MAIN + 2, a = Math.max(x(p[i + 1]), GUTTER), b = Math.min(x(p[i + 2]), width);
    if (begun) g.lineTo(b, y); else g.moveTo(b, y);
    g.lineTo(a, y);
    begun = true;
  }
  g.stroke();
  g.globalAlpha = 1;
}

function drawAxis() {
  const [g, w] = context(axis, 30);
  width = w;
  // Times count from the begin of the iteration that the view begins in, if it shows few.
  const d = nice(to - from, (width - GUTTER) / 90), digits = Math.max(0, Math.min(4, -Math.floor(Math.log10(d * msPer) + 1e-9)));
  g.font = font(11); g.textAlign = "center"; g.fillStyle = colour.soft;
  for (let t = Math.ceil(from / d) * d; t <= to; t += d) {
    if (x(t) > width - 20) continue;
    g.fillText(ms(t, digits) + (t < Math.ceil(from / d) * d + d / 2 ? " ms" : ""), x(t), 25);
  }
  if (!ranks.length) return;
  const ps = ranks[0].periods;
  g.font = font(11, true); g.fillStyle = colour.ink; g.textAlign = "left";
  let free = -1;
  for (let i = 0; i < ps.length; i += 2) {
    const a = Math.max(x(ps[i + 1]), GUTTER), b = i + 3 < ps.length ? x(ps[i + 3]) : width, words = "iteration " + ps[i];
    if (b < GUTTER + 20 || a > width - 20 || a < free) continue;
    const short = b - a > 74 ? words : String(ps[i]), room = g.measureText(short).width;
    if (a + room > width) continue;
    g.fillText(short, a + 2, 9);
    free = a + room + 12;
  }
}

function draw() {
  drawAxis();
  const [g] = context(canvas, height);
  g.fillStyle = colour.card; g.fillRect(0, 0, width, height);
  const d = nice(to - from, (width - GUTTER) / 90);
  g.strokeStyle = colour.faint; g.lineWidth = 1;
  g.beginPath();
  for (let t = Math.ceil(from / d) * d; t <= to; t += d) { g.moveTo(Math.round(x(t)) + 0.5, 0); g.lineTo(Math.round(x(t)) + 0.5, height); }
  g.stroke();
  for (const k of ranks) {
    g.fillStyle = colour.faint; g.fillRect(GUTTER, k.top, width - GUTTER, MAIN);
    g.save();
    g.beginPath(); g.rect(GUTTER, k.top - 4, width - GUTTER, k.bottom - k.top + 6); g.clip();
    for (let r = 0; r < k.rows.length; r++) drawRow(g, k, r);
    g.strokeStyle = colour.soft; g.setLineDash([3, 3]); g.lineWidth = 1;
    g.beginPath();
    if (k.periods.length && (to - from) * k.periods.length / 2 / data.length < 120) {
      for (let i = 0; i < k.periods.length; i += 2) { const a = Math.round(x(k.periods[i + 1])) + 0.5; g.moveTo(a, k.top - 4); g.lineTo(a, k.bottom + 2); }
    }
    g.stroke(); g.setLineDash([]);
    g.restore();
    g.fillStyle = colour.ink; g.font = font(13, true); g.textAlign = "left"; g.textBaseline = "alphabetic";
    g.fillText("rank " + k.rank, 2, k.top + 14);
    g.fillStyle = colour.soft; g.font = font(11);
    g.fillText(k.host.length > 17 ? k.host.slice(0, 16) + "…" : k.host, 2, k.top + 29);
  }
  drawPath(g);
  const n = iterationsShown();
  $("where").textContent = ms(to - from, 2) + " ms" + (n ? ", " + n : "");
  drawOverview();
}

// seen reports whether the view shows enough of [a, b) to speak of it.
const seen = (a, b) => Math.min(b, to) - Math.max(a, from) > Math.min((to - from) * 0.05, (b - a) * 0.5);

function iterationsShown() {
  if (!ranks.length) return "";
  const ps = ranks[0].periods;
  let a = null, b = null;
  for (let i = 0; i < ps.length; i += 2) {
    const end = i + 3 < ps.length ? ps[i + 3] : data.length;
    if (seen(ps[i + 1], end)) { if (a === null) a = ps[i]; b = ps[i]; }
  }
  return a === null ? "" : a === b ? "iteration " + a : "iterations " + a + " to " + b;
}

// The critical path of every iteration, as columns.
function drawOverview() {
  if (!overview || !data.paths.length) return;
  const h = 96, [g, w] = context(overview, h), n = data.paths.length, base = h - 16;
  const most = Math.max(...data.paths.map(p => p.slice(1).reduce((a, b) => a + b, 0)), 1);
  const col = Math.min((w - 60) / n, 60), bounds = new Map();
  if (ranks.length) for (let i = 0; i < ranks[0].periods.length; i += 2) bounds.set(ranks[0].periods[i], [ranks[0].periods[i + 1], i + 3 < ranks[0].periods.length ? ranks[0].periods[i + 3] : data.length]);
  g.font = font(11); g.fillStyle = colour.soft; g.textAlign = "right";
  g.fillText(ms(most, most * msPer < 100 ? 1 : 0) + " ms", 54, 12); g.fillText("0", 54, base);
  g.strokeStyle = colour.faint; g.beginPath(); g.moveTo(60, 8.5); g.lineTo(60 + col * n, 8.5); g.stroke();
  let free = 0;
  data.paths.forEach((p, i) => {
    let y = base;
    for (let c = 0; c < p.length - 1; c++) {
      const part = p[c + 1] / most * (base - 8);
      if (!part) continue;
      g.fillStyle = c === SKEW && col > 5 ? hatch : colour.k[c];
      g.fillRect(60 + i * col, y - part, Math.max(col - (col > 4 ? 1.5 : 0), 0.5), part);
      y -= part;
    }
    const b = bounds.get(p[0]);
    if (b && seen(b[0], b[1]) && to - from < data.length * 0.98) { g.fillStyle = colour.ink; g.fillRect(60 + i * col, base + 1, Math.max(col - (col > 4 ? 1.5 : 0), 1), 2); }
    if (60 + i * col >= free) {
      g.fillStyle = colour.soft; g.textAlign = "left";
      g.fillText(p[0], 60 + i * col, h - 2);
      free = 60 + i * col + Math.max(44, g.measureText(p[0]).width + 14);
    }
  });
  overview.pick = px => Math.floor((px - 60) / col);
}

let asked = false;
function redraw() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => { asked = false; draw(); });
}

function show(a, b) {
  const least = 20, all = Math.max(data.length, 1), room = all * 0.02;
  let w = Math.min(Math.max(b - a, least), all + 2 * room);
  a = Math.min(Math.max(a, -room), all + room - w);
  from = a; to = a + w;
  redraw();
}

// iteration shows the n-th iteration on all ranks.
function iteration(n) {
  if (!ranks.length || !ranks[0].periods.length) return;
  const count = ranks[0].periods.length / 2;
  at = Math.min(Math.max(n, 0), count - 1);
  const iter = ranks[0].periods[2 * at];
  let a = Infinity, b = -Infinity;
  for (const k of ranks) for (let i = 0; i < k.periods.length; i += 2) if (k.periods[i] === iter) {
    a = Math.min(a, k.periods[i + 1]);
    b = Math.max(b, i + 3 < k.periods.length ? k.periods[i + 3] : data.length);
  }
  show(a - (b - a) * 0.01, b + (b - a) * 0.01);
}

function box(e) {
  const r = canvas.getBoundingClientRect(), px = e.clientX - r.left, py = e.clientY - r.top, t = time(px), near = (to - from) / (width - GUTTER) * 2;
  if (px < GUTTER) return null;
  for (const k of ranks) {
    if (py < k.top - 4 || py > k.bottom) continue;
    for (let i = 0; i < k.rows.length; i++) {
      if (py < k.y[i] - 1 || py > k.y[i] + k.h[i] + 1) continue;
      const row = k.rows[i], j = first(row, t - near);
      if (j < row.n && row.begin[j] <= t + near) return { k, row, j, cls: row.cls[j], name: row.name[j], iter: row.iter[j] };
    }
  }
  return null;
}

const kinds = ["forward", "backward", "update", "exposed wait", "skew: waits for the last rank to begin", "waits for input", "sync", "test", "snapshot", "", "push in flight", "pull in flight", "read", "held back and overtaken", "held back, let go by patience", "copy"];

function tell(b, e) {
  const { row, j, k } = b, rows = [["kind", kinds[row.cls[j]]], ["rank", k.rank + " (" + k.host + ")"], ["iteration", row.iter[j]]];
  let zero = 0;
  for (let i = 0; i < k.periods.length; i += 2) if (k.periods[i + 1] <= row.begin[j]) zero = k.periods[i + 1];
  rows.push(["begins", ms(row.begin[j] - zero) + " ms into the iteration"], ["takes", ms(row.end[j] - row.begin[j]) + " ms"]);
  if (row.bytes[j] > 0) {
    rows.push(["bytes", row.bytes[j].toLocaleString("en")]);
    if (row.end[j] > row.begin[j]) rows.push(["rate", (row.bytes[j] / 1e6 / ((row.end[j] - row.begin[j]) * msPer / 1e3)).toFixed(0) + " MB/s"]);
  }
  tip.replaceChildren();
  const head = document.createElement("b"), table = document.createElement("table");
  head.textContent = data.names[row.name[j]] || data.classes[row.cls[j]];
  for (const r of rows) { const tr = table.insertRow(); for (const c of r) tr.insertCell().textContent = c; }
  tip.append(head, table);
  tip.style.display = "block";
  const w = tip.offsetWidth, h = tip.offsetHeight;
  tip.style.left = Math.max(4, Math.min(e.clientX + 14, innerWidth - w - 8)) + "px";
  tip.style.top = (e.clientY + 18 + h > innerHeight ? e.clientY - h - 12 : e.clientY + 18) + "px";
}

let drag = null;
canvas.addEventListener("wheel", e => {
  const px = e.clientX - canvas.getBoundingClientRect().left;
  if (px < GUTTER) return;
  e.preventDefault();
  if (Math.abs(e.deltaX) > Math.abs(e.deltaY)) { const d = e.deltaX / (width - GUTTER) * (to - from); show(from + d, to + d); return; }
  const f = Math.exp(Math.max(-60, Math.min(60, e.deltaY)) * 0.006), t = time(px);
  show(t - (t - from) * f, t + (to - t) * f);
}, { passive: false });
canvas.addEventListener("pointerdown", e => { drag = { x: e.clientX, from, to }; canvas.setPointerCapture(e.pointerId); canvas.classList.add("drag"); });
canvas.addEventListener("pointerup", () => { drag = null; canvas.classList.remove("drag"); });
canvas.addEventListener("pointermove", e => {
  if (drag) {
    const d = (drag.x - e.clientX) / (width - GUTTER) * (drag.to - drag.from);
    tip.style.display = "none";
    show(drag.from + d, drag.to + d);
    return;
  }
  const b = box(e), changed = (b && hover) ? b.row !== hover.row || b.j !== hover.j : b !== hover;
  hover = b;
  if (b) tell(b, e); else tip.style.display = "none";
  if (changed) redraw();
});
canvas.addEventListener("pointerleave", () => { tip.style.display = "none"; if (hover) { hover = null; redraw(); } });
canvas.addEventListener("dblclick", e => {
  const b = box(e);
  if (b) { const a = b.row.begin[b.j], z = b.row.end[b.j]; show(a - (z - a) * 0.2, z + (z - a) * 0.2); }
});
if (overview) overview.addEventListener("click", e => {
  const p = overview.pick && data.paths[overview.pick(e.clientX - overview.getBoundingClientRect().left)];
  if (p) for (let i = 0; i < ranks[0].periods.length; i += 2) if (ranks[0].periods[i] === p[0]) iteration(i / 2);
});
$("all").onclick = () => show(-data.length * 0.01, data.length * 1.01);
$("one").onclick = () => iteration(at);
$("prev").onclick = () => iteration(at - 1);
$("next").onclick = () => iteration(at + 1);
addEventListener("resize", redraw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { colours(); redraw(); });
colours();
// What one looks for first: an iteration in the middle, where all runs evenly.
width = axis.clientWidth;
if (ranks.length) iteration(Math.floor(ranks[0].periods.length / 4)); else draw();
})();
