// What an answer of /overview looks like: figures, the topology, charts and tables.

import { Bars, SECONDS } from "./chart.js";
import { brief, byId, clock, duration, el, moment, number, plural, rate, setAttribute, setText, size } from "./dom.js";
import { Graph } from "./graph.js";
import { Table } from "./tables.js";

const HERE = "this instance";
const BAD = new Set(["dead letter", "failed", "record rejected", "skipped record"]);
const behind = (row) => (row.lag > 0 ? "behind" : null);
const delayOf = (now, time) => (time === undefined || time === null ? null : Math.max(0, now - time));

export class Views {
  constructor() {
    this.graph = new Graph(byId("graph"), (text) => setText(byId("chosen"), text));
    this.before = null;
    this.rates = new Map();
    this.changes = new Map();
    this.tiles = new Map();
    this.charts = { records: new Bars("Records per second", brief), batches: new Bars("Batches per second", brief), longest: new Bars("Longest batch", duration), failed: new Bars("Failed records per second", brief) };
    byId("timeline").append(...Object.values(this.charts).map((chart) => chart.root));
    this.topics = new Table(byId("topics"), {
      caption: "Topics that this instance reads", key: (row) => row.topic, empty: "No partition is assigned.", sortBy: 3, descending: true,
      columns: [
        { title: "Topic", value: (row) => row.topic },
        { title: "Partitions", value: (row) => row.partitions, numeric: true },
        { title: "Offsets per second", value: (row) => row.rate, text: (row) => rate(row.rate), numeric: true },
        { title: "Lag", value: (row) => row.lag, text: (row) => number(row.lag), numeric: true, state: behind },
        { title: "State", value: (row) => (row.paused ? "paused" : "read") },
      ],
    });
    this.stores = new Table(byId("stores"), {
      caption: "Stores, their sizes, and the event time that they have reached", key: (row) => `${row.stream}\n${row.store}`, empty: "No operator has state.",
      columns: [
        { title: "Stream", value: (row) => row.stream },
        { title: "Store", value: (row) => row.store },
        { title: "Keys", value: (row) => row.rows, text: (row) => (row.rows === null ? "–" : `≈ ${brief(row.rows)}`), numeric: true },
        { title: "Size", value: (row) => row.bytes, text: (row) => size(row.bytes), numeric: true },
        { title: "Event time", value: (row) => row.lowest, text: (row) => (row.lowest === null ? "–" : moment(row.lowest)), look: "line" },
        { title: "Delay", value: (row) => row.delay, text: (row) => (row.delay === null ? "–" : duration(row.delay)), numeric: true },
        { title: "Watermark delay", value: (row) => row.held, text: (row) => (row.held === null ? "–" : duration(row.held)), numeric: true },
      ],
    });
    this.sources = new Table(byId("sources"), {
      caption: "Sources of this instance", key: (row) => row.name, empty: "There is no source.",
      columns: [
        { title: "Source", value: (row) => row.name },
        { title: "Topic", value: (row) => row.topic },
        { title: "State", value: (row) => row.state },
      ],
    });
    this.tables = new Table(byId("tables"), {
      caption: "Tables that operators keep, write and look up", key: (row) => row.operator, empty: "There is no table.",
      columns: [
        { title: "Table", value: (row) => row.table },
        { title: "Operator", value: (row) => row.operator, look: "line" },
        { title: "How", value: (row) => row.kind, look: "line" },
        { title: "Key", value: (row) => row.key || "–" },
        { title: "Rows", value: (row) => row.rows, text: (row) => (row.rows === null ? "–" : `≈ ${brief(row.rows)}`), numeric: true },
        { title: "Changes per second", value: (row) => row.rate, text: (row) => rate(row.rate), numeric: true },
        { title: "Inserted", value: (row) => row.inserted, text: (row) => brief(row.inserted), numeric: true },
        { title: "Updated", value: (row) => row.updated, text: (row) => brief(row.updated), numeric: true },
        { title: "Deleted", value: (row) => row.deleted, text: (row) => brief(row.deleted), numeric: true },
        { title: "Unchanged", value: (row) => row.unchanged, text: (row) => brief(row.unchanged), numeric: true },
        { title: "Upserts written", value: (row) => row.upserts, text: (row) => brief(row.upserts), numeric: true },
        { title: "Deletes written", value: (row) => row.deletes, text: (row) => brief(row.deletes), numeric: true },
        { title: "Lag", value: (row) => row.lag, text: (row) => number(row.lag), numeric: true, state: behind },
        { title: "Size", value: (row) => row.bytes, text: (row) => size(row.bytes), numeric: true },
      ],
    });
    this.partitions = new Table(byId("partitions"), {
      caption: "Partitions of all instances", key: (row) => `${row.topic}\n${row.partition}`, empty: "No partition is to be shown.",
      columns: [
        { title: "Topic", value: (row) => row.topic },
        { title: "Partition", value: (row) => row.partition, numeric: true },
        { title: "Position", value: (row) => row.position, text: (row) => number(row.position), numeric: true },
        { title: "Committed", value: (row) => row.committed, text: (row) => number(row.committed), numeric: true },
        { title: "End", value: (row) => row.end, text: (row) => number(row.end), numeric: true },
        { title: "Owner", value: (row) => row.owner, link: (row) => row.url },
        { title: "Lag", value: (row) => row.lag, text: (row) => number(row.lag), numeric: true, state: behind },
      ],
    });
    this.troubles = new Table(byId("troubles"), {
      caption: "The last troubles of tasks, and records that failed", key: (row) => row.key, empty: "No task had to wait or to begin again, and no record failed.", sortBy: 0, descending: true,
      columns: [
        { title: "Time", value: (row) => row.at, text: (row) => clock(row.at), look: "line" },
        { title: "Task", value: (row) => `${row.stream}[${row.partition}]` },
        { title: "What", value: (row) => row.kind, state: (row) => (BAD.has(row.kind) ? "bad" : null) },
        { title: "Record", value: (row) => row.record || "–" },
        { title: "Operator or sink", value: (row) => row.operator || "–" },
        { title: "Reason", value: (row) => row.reason, look: "wide" },
      ],
    });
    byId("smaller").addEventListener("click", () => this.graph.zoom(false));
    byId("larger").addEventListener("click", () => this.graph.zoom(true));
    byId("fit").addEventListener("click", () => this.graph.fit());
    for (const id of ["filter", "behind", "own"]) byId(id).addEventListener("input", () => this.showPartitions());
  }

  topology(found) {
    const same = JSON.stringify(found);
    if (same === this.drawn) return;
    this.drawn = same;
    this.declared = found.streams.flatMap((stream) => stream.stores.map((store) => ({ stream: stream.name, store: store.name })));
    this.graph.show(found);
  }

  show(found) {
    this.found = found;
    this.measure(found);
    const topics = this.byTopic(found);
    const lag = found.lag_at === null ? null : found.partitions.reduce((sum, row) => sum + (row.lag ?? 0), 0);
    const resident = found.processing_mode === "resident";
    const { run, process } = found;
    this.tile("records", "Records per second", rate(run.rate).replace("/s", ""));
    this.tile("lag", "Lag", number(lag), lag > 0 ? "behind" : null);
    this.tile("read", "Records read", brief(run.records));
    this.tile("produced", "Records sent", brief(run.produced));
    this.tile("batches", resident ? "Commits" : "Batches", brief(run.batches));
    this.tile("skipped", "Skipped", brief(run.skipped), run.skipped ? "bad" : null);
    this.tile("dead", "Dead letters", brief(run.dead_letters), run.dead_letters ? "bad" : null);
    this.tile("restarts", "Restarts by Spark", brief(process.restarts), process.restarts ? "behind" : null);
    this.graph.update(topics);
    this.topics.update([...topics.values()]);
    byId("sources-card").hidden = found.sources.length === 0;
    const paused = new Set(found.status.paused_sources);
    this.sources.update(found.sources.map((row) => ({ ...row, state: paused.has(row.name) ? "paused" : row.running ? "running" : "not running" })));
    this.showTimeline(found, resident);
    this.showStores(found);
    this.showTables(found);
    this.showRestores(found.restores);
    this.showPartitions();
    setText(byId("troubles-sum"), [
      plural(run.skipped, "skipped record"), `${plural(run.dead_letters, "dead letter")} in this run`, plural(process.interruptions, "interruption"), plural(process.sink_pauses, "pause") + " of sinks", plural(process.lock_waits, "wait") + " for stores of another process",
    ].join(" · ") + " since the process began.");
    this.troubles.update(found.troubles.map((row, index) => ({ ...row, key: `${row.at} ${row.stream} ${row.partition} ${row.kind} ${index}` })));
  }

  // Offsets per second of each topic, smoothed, from two answers.
  measure(found) {
    const now = new Map(found.partitions.map((row) => [`${row.topic}\n${row.partition}`, row.position]));
    const before = this.before;
    this.before = { at: found.at, positions: now };
    if (!before) return;
    const seconds = found.at - before.at;
    if (seconds < 0.2) {
      this.before = before;
      return;
    }
    const moved = new Map();
    for (const row of found.partitions) {
      const last = before.positions.get(`${row.topic}\n${row.partition}`);
      // A position that goes back is one that was not committed.
      moved.set(row.topic, (moved.get(row.topic) ?? 0) + Math.max(0, row.position - (last ?? row.position)));
    }
    const old = this.rates;
    this.rates = new Map([...moved].map(([topic, offsets]) => {
      const smooth = 0.5 * (offsets / seconds) + 0.5 * (old.get(topic) ?? offsets / seconds);
      return [topic, smooth < 0.05 ? 0 : smooth];
    }));
  }

  byTopic(found) {
    const paused = new Set(found.status.paused_topics);
    const topics = new Map();
    for (const row of found.partitions) {
      let sum = topics.get(row.topic);
      if (!sum) {
        sum = { topic: row.topic, partitions: 0, lag: null, rate: this.rates.get(row.topic) ?? null, paused: paused.has(row.topic) };
        topics.set(row.topic, sum);
      }
      sum.partitions += 1;
      if (row.lag !== null) sum.lag = (sum.lag ?? 0) + row.lag;
    }
    return topics;
  }

  tile(name, title, value, mark = null) {
    let shown = this.tiles.get(name);
    if (!shown) {
      shown = el("dd");
      this.tiles.set(name, shown);
      shown.word = el("dt");
      byId("tiles").append(el("div", { class: "tile" }, shown.word, shown));
    }
    setText(shown.word, title);
    setText(shown, value);
    setAttribute(shown, "data-state", mark);
  }

  showTimeline(found, resident) {
    // The running second is not complete.
    const first = Math.floor(found.at) - SECONDS;
    const columns = { batches: 1, records: 2, failed: 3, longest: 4 };
    for (const [name, column] of Object.entries(columns)) {
      const values = new Array(SECONDS).fill(0);
      for (const second of found.seconds) {
        const index = second[0] - first;
        if (index >= 0 && index < SECONDS) values[index] = second[column];
      }
      const chart = this.charts[name];
      if (name === "batches") chart.rename(resident ? "Commits per second" : "Batches per second");
      chart.root.hidden = (name === "longest" && resident) || (name === "failed" && !values.some(Boolean));
      chart.update(values);
    }
  }

  showStores(found) {
    const sizes = new Map(found.stores.map((row) => [`${row.stream}\n${row.store}`, row]));
    const times = new Map(found.event_times.map((row) => [`${row.stream}\n${row.store}`, row]));
    this.stores.update((this.declared ?? []).map((row) => {
      const time = times.get(`${row.stream}\n${row.store}`);
      const known = sizes.get(`${row.stream}\n${row.store}`);
      return { ...row, rows: known?.rows ?? null, bytes: known?.bytes ?? null, lowest: time?.lowest ?? null, delay: delayOf(found.at, time?.lowest), held: delayOf(found.at, time?.watermark) };
    }));
  }

  // Changes per second are those since the last answer in which time has passed.
  showTables(found) {
    byId("tables-card").hidden = found.tables.length === 0;
    this.tables.update(found.tables.map((row) => {
      const changes = row.inserted + row.updated + row.deleted || row.upserts + row.deletes;
      const last = this.changes.get(row.operator) ?? { at: found.at, changes, rate: null };
      const seconds = found.at - last.at;
      const now = seconds >= 0.2 ? { at: found.at, changes, rate: Math.max(0, changes - last.changes) / seconds } : last;
      this.changes.set(row.operator, now);
      return { ...row, rate: row.kind === "looked up" ? null : now.rate };
    }));
  }

  showRestores(restores) {
    byId("restoring").hidden = restores.length === 0;
    const left = restores.reduce((sum, row) => sum + Math.max(0, row.total - row.done), 0);
    setText(byId("restoring-sum"), `${plural(restores.length, "store partition")}, ${plural(left, "offset")} left.`);
    byId("restores").replaceChildren(...restores.map((row) => {
      const name = `${row.store} of ${row.stream}[${row.partition}]`;
      return el("li", {}, el("span", {}, name), el("progress", { max: Math.max(1, row.total), value: row.done, "aria-label": name }), el("span", { class: "number" }, `${brief(row.done)} of ${brief(row.total)}`));
    }));
  }

  showPartitions() {
    if (!this.found) return;
    const text = byId("filter").value.trim().toLowerCase();
    const lagging = byId("behind").checked;
    // The position is newer than the last answer of Kafka.
    const own = this.found.partitions.map((row) => ({ ...row, end: row.end === null ? null : Math.max(row.end, row.position), owner: HERE, url: null }));
    const others = this.found.other_partitions.map((row) => ({ ...row, position: null }));
    const all = byId("own").checked ? own : [...own, ...others];
    const rows = all.filter((row) => row.topic.toLowerCase().includes(text) && (!lagging || row.lag > 0));
    const age = this.found.lag_at === null ? "Kafka has not been asked for the lag yet" : `Kafka was asked for the lag ${duration(Math.max(0, this.found.at - this.found.lag_at))} ago`;
    const elsewhere = others.length === 0 ? "" : ` ${plural(others.length, "partition")} belong${others.length === 1 ? "s" : ""} to other instances of the group.`;
    setText(byId("partitions-sum"), `${rows.length === all.length ? plural(all.length, "partition") : `${number(rows.length)} of ${plural(all.length, "partition")}`}. ${age}.${elsewhere}`);
    this.partitions.update(rows);
  }
}
