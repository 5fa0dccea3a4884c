// The topology as a drawing: topics, operators, and on the edges from topics the rate and the lag.

import { brief, plural, rate, setAttribute, setText, svg } from "./dom.js";
import { layered } from "./layout.js";

const WIDTH = 164;
const HEIGHT = 46;
const GAP = { across: 16, right: 92, down: 54 };
const MARGIN = 12;
const NARROW = 640;
// Smaller texts cannot be read; larger drawings scroll.
const SMALLEST_FIT = 0.8;
const LETTERS = 22;
const STEP = 1.25;
const DIRECTIONS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

export class Graph {
  // container: where to draw. describe: called with the text about the chosen item.
  constructor(container, describe) {
    this.container = container;
    this.describe = describe;
    this.items = new Map();
    this.labels = [];
    this.scale = null;
    this.live = new Map();
    new ResizeObserver(() => this.resized()).observe(container);
  }

  show(topology) {
    this.topology = topology;
    this.build();
    this.update(this.live);
  }

  build() {
    const { nodes, edges } = elements(this.topology);
    this.down = this.container.clientWidth < NARROW;
    const found = layered([...nodes.keys()], edges.map((edge) => [edge.from, edge.to]));
    const along = (this.down ? HEIGHT + GAP.down : WIDTH + GAP.right);
    const across = (this.down ? WIDTH : HEIGHT) + GAP.across;
    const point = (item) => {
      const [main, cross] = [item.layer * along, (item.across - 0.5) * across + GAP.across / 2];
      return this.down ? { x: MARGIN + cross, y: MARGIN + main } : { x: MARGIN + main, y: MARGIN + cross };
    };
    const main = found.layers * along - (this.down ? GAP.down : GAP.right) + 2 * MARGIN;
    const cross = found.across * across + 2 * MARGIN;
    [this.width, this.height] = this.down ? [cross, main] : [main, cross];
    this.canvas = svg("svg", { role: "listbox", "aria-label": `${plural(this.topology.nodes.length, "operator")} and their topics`, viewBox: `0 0 ${this.width} ${this.height}` });
    const arrow = svg("path", { d: "M0 0 8 4 0 8z", class: "arrow" });
    this.canvas.append(svg("defs", {}, svg("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto-start-reverse" }, arrow)));
    const lines = svg("g", { "aria-hidden": "true" });
    const words = svg("g", { "aria-hidden": "true" });
    this.canvas.append(lines);
    this.labels = [];
    edges.forEach((edge, index) => {
      const corners = this.corners(found.routes[index], point);
      const path = svg("path", { class: "edge", d: curve(corners, this.down), "marker-end": "url(#arrow)" });
      lines.append(path);
      if (edge.topic) words.append(this.label(edge.topic, path, corners));
    });
    this.items = new Map();
    for (const [id, node] of nodes) {
      const at = point(found.items.get(id));
      const drawn = this.node(node, at);
      this.items.set(id, { node, drawn, second: drawn.querySelector(".second"), x: at.x + WIDTH / 2, y: at.y + HEIGHT / 2 });
      this.canvas.append(drawn);
    }
    this.canvas.append(words);
    this.current = this.items.keys().next().value;
    this.items.get(this.current)?.drawn.setAttribute("tabindex", "0");
    this.canvas.addEventListener("keydown", (event) => this.pressed(event));
    this.container.replaceChildren(this.canvas);
    this.resize();
  }

  // The corners of an edge: where it leaves, where it enters and leaves the layers between, and where it arrives.
  corners(route, point) {
    const down = this.down;
    const turned = route[0].layer > route[route.length - 1].layer;
    const side = (item, leaving) => {
      const { x, y } = point(item);
      const far = leaving !== turned;
      return down ? [x + WIDTH / 2, far ? y + HEIGHT : y] : [far ? x + WIDTH : x, y + HEIGHT / 2];
    };
    return route.flatMap((item, index) => [...(index > 0 ? [side(item, false)] : []), ...(index < route.length - 1 ? [side(item, true)] : [])]);
  }

  label(topic, path, [[x0, y0], [x1, y1]]) {
    const [x, y] = [(x0 + x1) / 2, (y0 + y1) / 2];
    // Beside a line that goes down, above and below one that goes to the right.
    const [left, anchor] = this.down ? [x + 8, "start"] : [x, "middle"];
    const first = svg("text", { class: "live", x: left, y: y - 5, "text-anchor": anchor });
    const second = svg("text", { class: "live", x: left, y: this.down ? y + 8 : y + 13, "text-anchor": anchor });
    this.labels.push({ topic, path, first, second });
    return svg("g", {}, first, second);
  }

  node(node, { x, y }) {
    const group = svg("g", { role: "option", "aria-selected": "false", "aria-label": node.title, tabindex: "-1", class: `node ${node.kind}`, transform: `translate(${x} ${y})` });
    group.append(
      svg("title", {}, node.title),
      svg("rect", { width: WIDTH, height: HEIGHT, rx: node.kind === "topic" ? HEIGHT / 2 : 7 }),
      svg("text", { class: "first", x: WIDTH / 2, y: 20, "text-anchor": "middle" }, cut(node.name)),
      svg("text", { class: "second", x: WIDTH / 2, y: 35, "text-anchor": "middle" }, cut(node.second)),
    );
    group.addEventListener("focus", () => this.choose(node.id));
    group.addEventListener("click", () => group.focus());
    return group;
  }

  choose(id) {
    this.items.get(this.current)?.drawn.setAttribute("tabindex", "-1");
    for (const [each, item] of this.items) setAttribute(item.drawn, "aria-selected", String(each === id));
    this.current = id;
    const { node, drawn } = this.items.get(id);
    drawn.setAttribute("tabindex", "0");
    this.describe(node.title);
  }

  pressed(event) {
    const direction = DIRECTIONS[event.key];
    if (!direction || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    const here = this.items.get(this.current);
    let best = null;
    for (const item of this.items.values()) {
      const [dx, dy] = [item.x - here.x, item.y - here.y];
      const ahead = dx * direction[0] + dy * direction[1];
      const aside = Math.abs(dx * direction[1]) + Math.abs(dy * direction[0]);
      if (ahead > 1 && (best === null || ahead + 3 * aside < best.far)) best = { item, far: ahead + 3 * aside };
    }
    best?.item.drawn.focus();
  }

  // live: Map(topic -> {rate, lag, partitions, paused, stuck}) of the topics that are read.
  update(live) {
    this.live = live;
    for (const { topic, path, first, second } of this.labels) {
      const now = live.get(topic);
      setText(first, now?.paused ? "paused" : now ? rate(now.rate) : "");
      setText(second, now && now.lag !== null ? `lag ${brief(now.lag)}` : "");
      setAttribute(second, "class", now?.lag > 0 ? "live behind" : "live");
      setAttribute(path, "class", `edge${now?.paused ? " paused" : ""}${now?.rate > 0 ? " moving" : ""}`);
    }
    for (const { node, drawn, second } of this.items.values()) {
      if (node.kind !== "topic") continue;
      const now = live.get(node.name);
      setText(second, now ? plural(now.partitions, "partition") : node.second);
      setAttribute(drawn, "class", `node topic${now?.paused ? " paused" : ""}`);
    }
  }

  resized() {
    if (!this.topology) return;
    if (this.container.clientWidth < NARROW !== this.down) this.show(this.topology);
    else this.resize();
  }

  resize() {
    const fitting = Math.min(1, Math.max(SMALLEST_FIT, this.container.clientWidth / this.width));
    const scale = this.scale ?? fitting;
    this.canvas.setAttribute("width", Math.round(this.width * scale));
    this.canvas.setAttribute("height", Math.round(this.height * scale));
    this.shown = scale;
  }

  zoom(larger) {
    this.scale = Math.min(2.5, Math.max(0.3, larger ? this.shown * STEP : this.shown / STEP));
    this.resize();
  }

  fit() {
    this.scale = null;
    this.resize();
  }
}

function elements(topology) {
  const nodes = new Map();
  const edges = [];
  const topic = (name, note) => {
    const id = `topic ${name}`;
    if (!nodes.has(id)) nodes.set(id, { id, kind: "topic", name, second: note, title: `topic ${name}` });
    return id;
  };
  for (const node of topology.nodes) {
    const id = `operator ${node.id}`;
    const parts = [node.id, node.description, `stream ${node.stream}`, node.reads && `reads ${node.reads}`, node.writes && `writes ${node.writes}`, node.location];
    const source = node.reads && topic(node.reads, "input");
    nodes.set(id, { id, kind: "operator", name: node.id, second: node.description, title: parts.filter(Boolean).join(" · ") });
    if (source) edges.push({ from: source, to: id, topic: node.reads });
    for (const parent of node.parents) edges.push({ from: `operator ${parent}`, to: id });
    if (node.writes) edges.push({ from: id, to: topic(node.writes, "output") });
  }
  return { nodes, edges };
}

function curve(corners, down) {
  let path = `M${corners[0].join(" ")}`;
  for (let index = 1; index < corners.length; index += 1) {
    const [[x0, y0], [x1, y1]] = [corners[index - 1], corners[index]];
    const [mx, my] = [(x0 + x1) / 2, (y0 + y1) / 2];
    path += down ? `C${x0} ${my} ${x1} ${my} ${x1} ${y1}` : `C${mx} ${y0} ${mx} ${y1} ${x1} ${y1}`;
  }
  return path;
}

function cut(text) {
  const letters = [...text];
  if (letters.length <= LETTERS) return text;
  // Names of internal topics differ at their ends.
  const half = Math.floor((LETTERS - 1) / 2);
  return `${letters.slice(0, half).join("")}…${letters.slice(-half).join("")}`;
}
