// The form that looks up committed state by message key.

import { ask } from "./api.js";
import { byId, el, number, plural, setText } from "./dom.js";
import { Table } from "./tables.js";

const text = (value) => (typeof value === "string" ? value : JSON.stringify(value));

// Bytes are shown as text where they are text.
function shown(value) {
  if (value === null || typeof value !== "object" || !("$base64" in value)) return text(value);
  const bytes = Uint8Array.from(atob(value.$base64), (each) => each.charCodeAt(0));
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return `bytes ${value.$base64}`;
  }
}

const window = (row) => `${new Date(row.start_ms).toISOString()} to ${new Date(row.end_ms).toISOString()}`;

export class Lookup {
  constructor() {
    this.asked = 0;
    this.table = new Table(byId("found"), {
      caption: "State of the key",
      columns: [
        { title: "State key or window", value: (row) => row.name },
        { title: "Value", value: (row) => row.value, look: "wide" },
      ],
      key: (row) => row.name,
      empty: "",
    });
    byId("lookup").addEventListener("submit", (event) => {
      event.preventDefault();
      this.find();
    });
  }

  // The stores of a topology; without any, there is no form.
  stores(topology) {
    const found = topology.streams.flatMap((stream) => stream.stores);
    const chosen = byId("lookup-store").value;
    byId("lookup-store").replaceChildren(...found.map((store) => (
      el("option", { value: JSON.stringify([store.name, store.scope]) }, `${store.name} of ${store.scope}`)
    )));
    if (chosen) byId("lookup-store").value = chosen;
    byId("lookup-card").hidden = found.length === 0;
  }

  async find() {
    this.asked += 1;
    const [turn, key] = [this.asked, byId("lookup-key").value];
    const [store, topic] = JSON.parse(byId("lookup-store").value);
    this.say("Asking…");
    let found;
    try {
      const query = new URLSearchParams({ topic, redirect: "false" });
      found = await ask("GET", `/state/${encodeURIComponent(store)}/${encodeURIComponent(key)}?${query}`);
    } catch (error) {
      if (turn === this.asked) this.say(error.message, [], true);
      return;
    }
    // The answer to an earlier question may come later.
    if (turn !== this.asked) return;
    const position = found.position.map((each) => `${each.topic}[${each.partition}] at offset ${number(each.offset)}`).join(", ");
    const rows = found.entries.map((row) => ({ name: row.start_ms === undefined ? shown(row.state_key) : window(row), value: shown(row.value) }));
    const count = found.cursor === null ? plural(rows.length, "entry").replace("entrys", "entries") : `the first ${number(rows.length)} entries`;
    this.say(`${rows.length ? count : "No state"} in partition ${found.partition}. Position: ${position || "none"}.`, rows);
  }

  say(words, rows = [], bad = false) {
    setText(byId("found-sum"), words);
    byId("found-sum").classList.toggle("wrong", bad);
    byId("found").hidden = rows.length === 0;
    this.table.update(rows);
  }
}
