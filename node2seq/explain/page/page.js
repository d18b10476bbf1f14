// The page of a run. Everything comes from the server that sent it, or from the data inside a file of its own.

const COLOURS = 7;
const MOST_LINKS = 200;  // of more of them none can be told from the others
const embedded = document.getElementById("data");
const given = embedded ? JSON.parse(embedded.textContent) : null;
const byId = (id) => document.getElementById(id);
const state = { name: null, off: [], layer: 0, query: "", which: "all", part: "all", label: "", predicted: "" };
let run, learned, view, changes = {}, listed = 0, asked = 0, dark = matchMedia("(prefers-color-scheme: dark)");

function make(tag, about = {}, ...children) {
  const svg = ["svg", "g", "circle", "line", "path", "text", "title"].includes(tag) && about.svg !== false;
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [key, value] of Object.entries(about)) {
    if (key === "svg" || value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "style") Object.assign(node.style, value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

const percent = (value) => `${(100 * value).toFixed(1)} %`;
const signed = (value) => (value < 0 ? "−" : "+") +
  (value !== 0 && Math.abs(value) < 5e-4 ? Math.abs(value).toExponential(0) : Math.abs(value).toFixed(3));
const points = (value) => (Math.abs(value) < 5e-4 ? "0.0" : (value < 0 ? "−" : "+") + Math.abs(100 * value).toFixed(1));
const minus = (text) => text.replace("-", "−");
// A number to predict has any size: 0.012, 160.
const amount = (value) => (value < 0 ? "−" : "+") + (Math.abs(value) >= 10 ? Math.abs(value).toFixed(0) : Math.abs(value).toPrecision(2));
const hasClasses = () => run.class_names.length > 0;
const hue = (number) => (number === null ? "" : ` c${number}`);
const className = (number) => run.class_names[number] ?? String(number);
// Long names that begin alike may differ at the end.
const short = (name) => (name.length > 24 ? `${name.slice(0, 11)}…${name.slice(-11)}` : name);

// Further classes get colours of their own: the golden angle between their hues, at three levels of lightness.
function addColours(classes) {
  const sheet = new CSSStyleSheet();
  for (let number = COLOURS; number < classes; number++) {
    const hsl = `${((number * 137.508) % 360).toFixed(1)} 55%`;
    sheet.insertRule(`.c${number} { --own: hsl(${hsl} calc(var(--tone) + ${(number % 3) * 10 - 10}%)); }`);
  }
  document.adoptedStyleSheets = [sheet];
}

function chip(label, predicted) {
  if (!hasClasses()) return make("span");
  const shown = label ?? predicted;
  if (shown === null) return make("span", {}, "–");
  const wrong = label !== null && predicted !== null && label !== predicted;
  const kind = (label === null ? " guess" : "") + (wrong ? " wrong-class" : "");
  const told = label === null ? `predicted ${className(shown)}, unlabelled`
    : wrong ? `${className(label)}, predicted ${className(predicted)}` : className(label);
  return make("span", { class: `chip${hue(shown)}${kind}`, title: told }, make("i"), make("span", {}, short(className(shown))));
}

async function ask(path, parameters = {}) {
  if (given) return given[path];
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(parameters))
    for (const each of Array.isArray(value) ? value : [value]) if (each !== "") search.append(key, each);
  const answer = await fetch(`api/${path}?${search}`);
  const body = await answer.json().catch(() => ({ error: `the server answered ${answer.status}` }));
  if (!answer.ok) throw new Error(body.error ?? `the server answered ${answer.status}`);
  return body;
}

function tell(error) {
  byId("error").hidden = !error;
  byId("error").textContent = error ? error.message : "";
}

// Where we are stands in the address, so that it can be kept and sent.
function readAddress() {
  const hash = new URLSearchParams(location.hash.slice(1));
  state.name = hash.get("node");
  state.off = hash.getAll("off");
  state.layer = Number(hash.get("layer")) || 0;
  for (const key of ["query", "which", "part", "label", "predicted"])
    state[key] = hash.get(key) ?? (["which", "part"].includes(key) ? "all" : "");
}

function go(changed, replace = false) {
  Object.assign(state, changed);
  const hash = new URLSearchParams();
  if (state.name !== null) hash.append("node", state.name);
  for (const name of state.off) hash.append("off", name);
  if (state.layer) hash.append("layer", state.layer);
  for (const key of ["query", "which", "part", "label", "predicted"])
    if (state[key] !== "" && state[key] !== "all") hash.append(key, state[key]);
  const address = `#${hash}`;
  if (address !== location.hash) history[replace ? "replaceState" : "pushState"](null, "", address || "#");
  return update();
}

let shownList = null, shownNode = null;
async function update() {
  const list = JSON.stringify([state.query, state.which, state.part, state.label, state.predicted]);
  const node = JSON.stringify([state.name, state.off]);
  try {
    tell(null);
    if (!given && list !== shownList) { shownList = list; await search(0); }
    if (state.name !== null && node !== shownNode) { await showNode(node); } else if (view) drawLayer();
    markCurrent();
  } catch (error) { shownNode = null; tell(error); }
}

async function search(offset) {
  for (const key of ["query", "which", "part", "label", "predicted"])
    if (byId(key) !== document.activeElement) byId(key).value = state[key];
  const { query, which, part, label, predicted } = state;
  const found = await ask("nodes", { query, which, part, label, predicted, offset });
  if (!offset) { byId("nodes").replaceChildren(); listed = 0; }
  listed += found.nodes.length;
  byId("found").textContent = `${found.total.toLocaleString("en")} ${found.total === 1 ? "node" : "nodes"}`;
  byId("more").hidden = listed >= found.total;
  byId("nodes").append(...found.nodes.map((node) => make("li", {}, make("button",
    { type: "button", "data-name": node.name, onclick: () => go({ name: node.name, off: [] }) },
    make("span", { class: "id" }, node.name), chip(node.label, node.predicted),
    make("span", { class: "sure" }, hasClasses() ? `${(100 * node.sure).toFixed(0)} %` : node.sure.toPrecision(3))))));
  markCurrent();
  return found;
}

function markCurrent() {
  for (const button of byId("nodes").querySelectorAll("button"))
    button.setAttribute("aria-current", button.dataset.name === state.name);
}

async function showNode(key) {
  const turn = ++asked, { name, off } = state;
  const found = given ? offline() : await ask("node", { name, without: off });
  if (turn !== asked) return;  // another node was asked for in the meantime
  const moved = !view || view.node.name !== found.node.name;
  view = found; shownNode = key;
  if (!given) changes = {};
  byId("node").hidden = false;
  document.title = `${name}: ${run.title}`;
  drawHead();
  drawLayer();
  if (moved && innerWidth <= 900) byId("view").scrollIntoView({ block: "start" });
  if (given) return;
  const later = await ask("changes", { name, without: off });
  if (turn !== asked) return;
  changes = Object.fromEntries(later.changes.map((each) => [each.name, each]));
  drawLayer();
}

// A file of its own has the prediction without each neighbour, one at a time.
function offline() {
  state.off = state.off.slice(-1).filter((name) => name in changes);
  if (!state.off.length) return given.node;
  return { ...given.node, probabilities: changes[state.off[0]].probabilities, without: state.off };
}

function drawHead() {
  const { node, probabilities, before } = view;
  byId("name").textContent = node.name;
  const best = hasClasses() ? probabilities.indexOf(Math.max(...probabilities)) : null;
  const known = node.labels === null ? "unlabelled" : best !== null && best === node.label ? "as in the files"
    : `in the files it is ${node.labels.join(", ") || "none of the labels"}`;
  // With several labels, the most probable one may be too improbable to be predicted.
  const several = node.labels !== null && node.label === null;
  byId("verdict").textContent = hasClasses() ? `${className(best)} is ${several ? "the most probable label" : "predicted"}; ${known}`
    : `${minus(String(+probabilities[0].toPrecision(5)))} is predicted; ${known}`;
  const order = probabilities.map((_, number) => number).sort((a, b) => Math.max(probabilities[b], before[b]) - Math.max(probabilities[a], before[a]));
  const rows = hasClasses() ? order.slice(0, 8).map((number) => make("div", { class: `share${hue(number)}${number === best ? " best" : ""}` },
    make("span", { title: className(number) }, short(className(number))),
    make("span", { class: "track" }, make("i", { style: { width: percent(probabilities[number]).replace(" ", "") } }),
      view.without.length ? make("b", { title: `before: ${percent(before[number])}`, style: { left: percent(before[number]).replace(" ", "") } }) : null),
    make("span", { class: "value", "data-class": number }, percent(probabilities[number])))) : [];
  if (order.length > 8 && rows.length) rows.push(make("p", { class: "caption" }, `${order.length - 8} more classes below`));
  byId("probabilities").replaceChildren(...rows);
  const parts = { train: "training", val: "validation", test: "test" };
  const facts = [["part", parts[node.part] ?? "none"], ["nodes read", view.nodes_read.toLocaleString("en")],
    ["switched off", view.without.length ? view.without.join(", ") : "none"]];
  if (view.linear !== null) facts.push(["linear model", `${signed(view.linear)} of the score ${minus(view.score.toPrecision(3))}`]);
  const list = make("dl", {}, ...facts.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
  const back = view.without.length ? make("button", { type: "button", onclick: () => go({ off: [] }) }, "Switch all on") : null;
  byId("facts").replaceChildren(...[list, back].filter(Boolean));
}

function drawLayer() {
  state.layer = Math.min(state.layer, view.layers.length - 1);
  const title = (layer) => layer.name + (view.layers.some((other) => other.head) ? `, head ${layer.head + 1}` : "");
  byId("layers").hidden = view.layers.length < 2;
  byId("layers").replaceChildren(...view.layers.map((layer, number) => make("button", {
    type: "button", role: "tab", "aria-selected": String(number === state.layer), onclick: () => go({ layer: number }, true),
  }, title(layer))));
  const layer = view.layers[state.layer];
  byId("graph").replaceChildren(egoGraph(layer));
  drawLegend(layer);
  byId("strip").replaceChildren(strip(layer));
  const error = layer.completeness_error.toExponential(1);
  byId("strip-note").textContent = (layer.hidden ? `${layer.hidden.toLocaleString("en")} more with smaller contributions. ` : "") +
    (layer.reads_order ? "" : "The layer has one tap: the order plays no part. ") +
    `The layer adds ${signed(layer.gain)} to the score; own features ${signed(layer.own)}, bias ${signed(layer.bias)}, ` +
    `integration error ${error}.`;
  drawMatrices(layer);
}

const isOff = (neighbour) => state.off.includes(neighbour.name);
const others = (layer) => layer.neighbours.map((each, place) => ({ ...each, place })).filter((each) => each.kind !== "self");

function follow(name) { if (!given) go({ name, off: [], layer: state.layer }); }
function toggle(name) {
  go({ off: state.off.includes(name) ? state.off.filter((each) => each !== name) : given ? [name] : [...state.off, name] });
}

function withOff(layer) {
  // Neighbours that are switched off have no place any more; they stay in sight to be switched on again.
  const there = new Set(layer.neighbours.map((each) => each.name));
  const gone = state.off.filter((name) => !there.has(name)).map((name) => ({
    name, label: null, predicted: null, position: null, kind: "off", hops: 1, score: null, contribution: 0, can_switch: true,
  }));
  return [...layer.neighbours, ...gone];
}

function egoGraph(layer) {
  const size = 460, middle = size / 2, shown = others(layer), place = new Map([[-1, [middle, middle]]]);
  const far = shown.some((each) => each.kind === "non-local"), near = far ? 150 : 172;
  const svg = make("svg", { viewBox: `0 0 ${size} ${size}`, class: "ego", role: "img",
    "aria-label": `${view.node.name} and ${shown.length} nodes around it` });
  for (const radius of far ? [near, 204] : [near]) svg.append(make("circle", { class: "ring", cx: middle, cy: middle, r: radius }));
  shown.forEach((each, number) => {
    const angle = (2 * Math.PI * number) / shown.length - Math.PI / 2;
    const radius = each.kind === "non-local" ? 204 : near;
    place.set(each.place, [middle + radius * Math.cos(angle), middle + radius * Math.sin(angle)]);
  });
  for (const [a, b] of layer.links.length > MOST_LINKS ? [] : layer.links) {
    const [from, to] = [place.get(a), place.get(b)];
    if (a !== -1 && from && to) svg.append(make("path", { class: "link",
      d: `M${from}Q${(from[0] + to[0] + middle) / 3},${(from[1] + to[1] + middle) / 3} ${to}` }));
  }
  const most = Math.max(1e-12, ...layer.neighbours.map((each) => Math.abs(each.contribution)));
  for (const each of shown) {
    const [x, y] = place.get(each.place), kind = isOff(each) ? " off" : each.contribution < 0 ? " against" : "";
    if (each.position === null) continue;
    svg.append(make("line", { class: `ray${kind}`, x1: middle, y1: middle, x2: x, y2: y,
      "stroke-width": (0.6 + (shown.length > 24 ? 3 : 6) * Math.abs(each.contribution) / most).toFixed(2) }));
  }
  const radius = shown.length > 40 ? 8 : 11;
  for (const each of shown) {
    const [x, y] = place.get(each.place), kind = (isOff(each) ? " off" : "") + (each.position === null ? " rejected" : "");
    const words = `${each.name}: ${each.position === null ? "rejected" : `place ${each.position + 1}`}, contribution ${signed(each.contribution)}`;
    const spot = make("g", { class: `spot${hue(each.label ?? each.predicted)}${kind}`, "data-name": each.name,
      onclick: () => follow(each.name), onmouseenter: () => highlight(each.name), onmouseleave: () => highlight(null) },
      make("title", {}, words), make("circle", { cx: x, cy: y, r: radius }),
      make("text", { x, y }, each.position === null ? "×" : String(each.position + 1)));
    svg.append(spot);
    if (shown.length <= 24) svg.append(make("text", { class: "name", x, y: y < middle - 1 ? y - radius - 4 : y + radius + 11 }, each.name.length > 12 ? `${each.name.slice(0, 11)}…` : each.name));
  }
  const self = layer.neighbours.find((each) => each.kind === "self");
  svg.append(make("g", { class: `spot${hue(view.node.label ?? view.node.predicted)}${self && self.position === null ? " rejected" : ""}` }, make("title", {}, view.node.name),
    make("circle", { cx: middle, cy: middle, r: 17 }), make("text", { x: middle, y: middle }, self && self.position !== null ? String(self.position + 1) : "")));
  return svg;
}

function drawLegend(layer) {
  const classes = [...new Set(layer.neighbours.map((each) => each.label ?? each.predicted).filter((number) => number !== null))];
  const key = (hueClass, words) => make("span", { class: hueClass }, make("i", { class: "key" }), words);
  const notes = ["number: place in the order", "line: contribution"];
  if (layer.neighbours.some((each) => each.kind === "non-local")) notes.push("outer ring: from several hops away");
  if (layer.neighbours.some((each) => each.position === null)) notes.push("dashed: rejected");
  if (layer.hidden) notes.push(`${layer.hidden.toLocaleString("en")} more not drawn`);
  byId("graph-legend").replaceChildren(...classes.sort((a, b) => a - b).slice(0, 10).map((number) => key(hue(number).trim(), className(number))),
    ...notes.map((words) => make("span", {}, words)));
}

function strip(layer) {
  const rows = withOff(layer), most = Math.max(1e-12, ...rows.map((each) => Math.abs(each.contribution)));
  const heads = [["", ""], ["node", "left"], ["class", "left classes-only"], ["score", "spare"], ["contribution", "left"], ["without", ""], ["on", ""]];
  const kept = heads.filter(([, kind]) => hasClasses() || !kind.includes("classes-only"));
  return make("table", { class: "strip" },
    make("thead", {}, make("tr", {}, ...kept.map(([words, kind]) => make("th", { class: kind, scope: "col", title: words === "without" ? "how the prediction changes without the neighbour, in points" : null }, words)))),
    make("tbody", {}, ...rows.map((each) => stripRow(each, most))));
}

function stripRow(each, most) {
  const self = each.kind === "self", off = isOff(each), change = changes[each.name];
  const width = 50 * Math.abs(each.contribution) / most;
  const bar = make("i", { class: each.contribution < 0 ? "against" : "", style: each.contribution < 0
    ? { right: "50%", width: `${width}%` } : { left: "50%", width: `${width}%` } });
  const effect = self || !each.can_switch || off ? "" : change === undefined ? "…" : hasClasses() ? points(change.change) : amount(change.change);
  const told = change && hasClasses() ? run.class_names.map((name, number) => `${name} ${percent(change.probabilities[number])}`).join("\n") : null;
  const flips = change && hasClasses() && change.probabilities.indexOf(Math.max(...change.probabilities)) !== view.probabilities.indexOf(Math.max(...view.probabilities));
  const name = make("button", { type: "button", class: "row-name", disabled: self || Boolean(given), title: each.name,
    onclick: () => follow(each.name) }, self ? "itself" : each.name);
  const where = each.kind === "non-local" ? `${each.hops} hops` : each.position === null && !off ? "rejected" : "";
  return make("tr", { class: [off ? "off" : "", each.position === null ? "rejected" : ""].join(" ").trim(), "data-name": each.name, "data-kind": each.kind,
    onmouseenter: () => highlight(each.name), onmouseleave: () => highlight(null) },
    make("td", {}, each.position === null ? "–" : String(each.position + 1)),
    make("td", { class: "left" }, name, where ? make("small", { class: "sure" }, ` ${where}`) : null),
    hasClasses() ? make("td", { class: "left" }, chip(each.label, each.predicted)) : null,
    make("td", { class: "spare" }, each.score === null ? "" : minus(each.score.toPrecision(3))),
    make("td", { class: "left" }, make("span", { class: "meter" }, bar), make("span", { class: "number spare" }, signed(each.contribution))),
    make("td", { title: told, class: "effect" }, effect + (flips && effect ? ` → ${short(className(change.probabilities.indexOf(Math.max(...change.probabilities))))}` : "")),
    make("td", {}, each.can_switch ? make("input", { type: "checkbox", checked: !off, "aria-label": `${each.name} on`,
      onchange: () => toggle(each.name) }) : null));
}

function highlight(name) {
  for (const node of document.querySelectorAll("#strip tr, .ego .spot")) node.classList.toggle("hot", name !== null && node.dataset.name === name);
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim().split(" ").map(Number);
}

async function drawMatrices(layer) {
  learned ??= await ask("learned");
  const found = learned.layers.find((each) => each.name === layer.name);
  if (!found || view.layers[state.layer] !== layer) return;
  const most = Math.max(1e-12, ...found.matrices.flatMap((matrix) => matrix.values.flat().map(Math.abs)));
  const [good, bad] = [colour("--good"), colour("--bad")];
  byId("matrices").replaceChildren(...found.matrices.map((matrix) => {
    const [height, width] = [matrix.values.length, matrix.values[0].length];
    const canvas = make("canvas", { width, height, role: "img", "aria-label": `${matrix.title}, ${height} by ${width}` });
    const paint = canvas.getContext("2d"), image = paint.createImageData(width, height);
    matrix.values.flat().forEach((value, at) => {
      image.data.set(value < 0 ? bad : good, 4 * at);
      image.data[4 * at + 3] = 255 * Math.abs(value) / most;
    });
    paint.putImageData(image, 0, 0);
    return make("figure", {}, canvas, make("figcaption", {}, matrix.title));
  }));
  byId("matrices-note").textContent = `${found.channels} × ${found.channels} channels, in blocks where there are more than 32; ` +
    `strongest value ${most.toPrecision(2)}; blue or teal is positive, orange negative.`;
}

function drawConfusion() {
  const part = state.part in run.confusion ? state.part : "all", matrix = run.confusion[part];
  if (!matrix) return;
  const head = make("tr", {}, make("th"), ...run.class_names.map((name) => make("th", { scope: "col", title: name }, name)));
  const rows = matrix.map((counts, label) => {
    const total = Math.max(1, counts.reduce((sum, count) => sum + count, 0));
    return make("tr", {}, make("th", { scope: "row" }, run.class_names[label]), ...counts.map((count, predicted) => {
      const cell = make("td", { class: label === predicted ? "right" : "wrong" }, make("button", {
        type: "button", disabled: !count, "data-label": label, "data-predicted": predicted,
        "aria-label": `${count} of ${run.class_names[label]} predicted ${run.class_names[predicted]}`,
        onclick: () => openCell(label, predicted) }, String(count)));
      cell.style.setProperty("--share", count / total);
      return cell;
    }));
  });
  byId("confusion").replaceChildren(make("table", { class: "shaded" }, make("thead", {}, head), make("tbody", {}, ...rows)));
}

async function openCell(label, predicted) {
  await go({ query: "", which: "all", label: String(label), predicted: String(predicted) });
  const first = byId("nodes").querySelector("button");
  if (first) await go({ name: first.dataset.name, off: [] }, true);
}

function listen() {
  byId("search").addEventListener("submit", (event) => {
    event.preventDefault();
    byId("nodes").querySelector("button")?.click();
  });
  let wait;
  byId("query").addEventListener("input", (event) => {
    clearTimeout(wait);
    wait = setTimeout(() => go({ query: event.target.value }, true), 120);
  });
  for (const key of ["which", "part", "label", "predicted"])
    byId(key).addEventListener("change", async (event) => { await go({ [key]: event.target.value }); drawConfusion(); });
  byId("more").addEventListener("click", () => search(listed).catch(tell));
  addEventListener("popstate", () => { readAddress(); update(); drawConfusion(); });
  dark.addEventListener("change", () => view && drawLayer());
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") document.activeElement.blur();
    if (event.target.matches("input[type=search], select")) return;
    const rows = [...document.querySelectorAll("#strip tbody tr")];
    const at = rows.findIndex((row) => row.contains(document.activeElement));
    const actions = {
      "/": () => byId("query").focus(),
      j: () => move(rows, at + 1), k: () => move(rows, at < 0 ? rows.length - 1 : at - 1),
      x: () => at >= 0 && toggle(rows[at].dataset.name).then(() => move([...document.querySelectorAll("#strip tbody tr")], at)),
      m: () => go({ which: state.which === "mistakes" ? "all" : "mistakes" }),
      "[": () => view && go({ layer: Math.max(0, state.layer - 1) }, true), "]": () => view && go({ layer: state.layer + 1 }, true),
    };
    if (event.key in actions) { event.preventDefault(); actions[event.key](); }
  });
}

function move(rows, to) {
  const row = rows[Math.min(Math.max(to, 0), rows.length - 1)];
  row?.querySelector("button:not([disabled]), input")?.focus();
  highlight(row?.dataset.name ?? null);
}

async function start() {
  run = await ask("run");
  addColours(run.class_names.length);
  byId("title").textContent = run.title;
  byId("lead").textContent = `${run.nodes.toLocaleString("en")} nodes · ${run.edges.toLocaleString("en")} edges · ` +
    `a neighbour is switched off by ${run.both_directions ? "the edges in both directions" : "its edge to the node"}`;
  for (const node of document.querySelectorAll(".classes")) node.hidden = !hasClasses();
  for (const id of ["label", "predicted"]) byId(id).replaceChildren(make("option", { value: "" }, "any"),
    ...run.class_names.map((name, number) => make("option", { value: number }, name)));
  if (given) {
    changes = Object.fromEntries(given.changes.changes.map((each) => [each.name, each]));
    byId("finder").hidden = byId("keys").hidden = true;
    document.querySelector(".panes").classList.add("alone");
    return go({ name: given.node.node.name }, true);
  }
  readAddress();
  listen();
  drawConfusion();
  await update();
  if (state.name === null) byId("nodes").querySelector("button")?.click();
}

start().catch(tell);
