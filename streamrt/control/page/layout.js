// A layered layout of a directed graph, without knowledge of how it is drawn. Cycles are allowed.
//
// 1. Edges that close a cycle are turned around. 2. A node is one layer behind the last of its parents. 3. Edges over several
// layers get a bend in each. 4. Layers are ordered by the mean place of neighbours. 5. Places across are moved towards those of
// neighbours, with a minimal distance.

const ORDER_SWEEPS = 8;
// An odd number, so that the last sweep puts operators behind their parents.
const PLACE_SWEEPS = 25;

// nodes: ids. edges: [from, to]. Returns {layers, place: Map(id -> {layer, across}), routes: for each edge the ids and bends it
// passes}. `across` is in units of one node.
export function layered(nodes, edges) {
  const forward = acyclic(nodes, edges);
  const layer = layersOf(nodes, forward);
  const items = new Map(nodes.map((id) => [id, { id, layer: layer.get(id), before: [], after: [], across: 0, size: 1 }]));
  const routes = forward.map(([from, to], index) => {
    const route = [items.get(from)];
    for (let between = layer.get(from) + 1; between < layer.get(to); between += 1) {
      const bend = { id: `bend ${index} ${between}`, layer: between, before: [], after: [], across: 0, size: 0.35 };
      items.set(bend.id, bend);
      route.push(bend);
    }
    route.push(items.get(to));
    for (let step = 1; step < route.length; step += 1) {
      route[step - 1].after.push(route[step]);
      route[step].before.push(route[step - 1]);
    }
    return route;
  });
  const layers = [];
  for (const item of items.values()) (layers[item.layer] ??= []).push(item);
  order(layers);
  place(layers);
  const lowest = Math.min(0, ...[...items.values()].map((item) => item.across - item.size / 2));
  for (const item of items.values()) item.across -= lowest;
  const turned = routes.map((route, index) => (forward[index][2] ? [...route].reverse() : route));
  return { layers: layers.length, across: Math.max(1, ...[...items.values()].map((item) => item.across + item.size / 2)), items, routes: turned };
}

function acyclic(nodes, edges) {
  const out = new Map(nodes.map((id) => [id, []]));
  for (const [from, to] of edges) out.get(from).push(to);
  const state = new Map();
  const back = new Set();
  for (const root of nodes) {
    // By hand, because long chains would use up the stack.
    const stack = state.has(root) ? [] : [[root, 0]];
    if (stack.length) state.set(root, "open");
    while (stack.length) {
      const top = stack[stack.length - 1];
      const next = out.get(top[0])[top[1]];
      top[1] += 1;
      if (next === undefined) {
        state.set(top[0], "done");
        stack.pop();
      } else if (state.get(next) === "open") {
        back.add(`${top[0]}\n${next}`);
      } else if (!state.has(next)) {
        state.set(next, "open");
        stack.push([next, 0]);
      }
    }
  }
  return edges.map(([from, to]) => (back.has(`${from}\n${to}`) ? [to, from, true] : [from, to, false]));
}

function layersOf(nodes, edges) {
  const waits = new Map(nodes.map((id) => [id, 0]));
  const out = new Map(nodes.map((id) => [id, []]));
  for (const [from, to] of edges) {
    if (from === to) continue;
    waits.set(to, waits.get(to) + 1);
    out.get(from).push(to);
  }
  const layer = new Map(nodes.map((id) => [id, 0]));
  const first = nodes.filter((id) => waits.get(id) === 0);
  const ready = [...first];
  for (let at = 0; at < ready.length; at += 1) {
    for (const next of out.get(ready[at])) {
      layer.set(next, Math.max(layer.get(next), layer.get(ready[at]) + 1));
      waits.set(next, waits.get(next) - 1);
      if (waits.get(next) === 0) ready.push(next);
    }
  }
  // What nothing leads to stands right before what it leads to.
  for (const id of first) {
    const after = out.get(id).map((next) => layer.get(next));
    if (after.length) layer.set(id, Math.min(...after) - 1);
  }
  return layer;
}

const mean = (items, value) => items.reduce((sum, item) => sum + value(item), 0) / items.length;

function order(layers) {
  const number = () => layers.forEach((items) => items.forEach((item, index) => { item.order = index; }));
  number();
  for (let sweep = 0; sweep < ORDER_SWEEPS; sweep += 1) {
    const side = sweep % 2 === 0 ? "before" : "after";
    for (const items of sweep % 2 === 0 ? layers : [...layers].reverse()) {
      for (const item of items) item.wish = item[side].length ? mean(item[side], (other) => other.order / layers[other.layer].length) : item.order / items.length;
      items.sort((a, b) => a.wish - b.wish || a.order - b.order);
      items.forEach((item, index) => { item.order = index; });
    }
  }
}

function place(layers) {
  for (const items of layers) spread(items, items.map((item) => item.order));
  for (let sweep = 0; sweep < PLACE_SWEEPS; sweep += 1) {
    for (const items of sweep % 2 === 0 ? layers : [...layers].reverse()) {
      spread(items, items.map((item) => {
        const near = sweep % 2 === 0 ? item.before : item.after;
        const chosen = near.length ? near : [...item.before, ...item.after];
        return chosen.length ? mean(chosen, (other) => other.across) : item.across;
      }));
    }
  }
}

// The mean of the closest places from the left and from the right keeps the distances, because both do.
function spread(items, wishes) {
  const gap = (index) => (items[index].size + items[index - 1].size) / 2;
  const left = [...wishes];
  for (let index = 1; index < items.length; index += 1) left[index] = Math.max(wishes[index], left[index - 1] + gap(index));
  const right = [...wishes];
  for (let index = items.length - 2; index >= 0; index -= 1) right[index] = Math.min(wishes[index], right[index + 1] - gap(index + 1));
  items.forEach((item, index) => { item.across = (left[index] + right[index]) / 2; });
}
