// The dashboard: asks /overview every two seconds while it can be seen, and shows the answer.

import { ask, hasToken, useToken } from "./api.js";
import { byId, clock, el, setAttribute, setText } from "./dom.js";
import { Lookup } from "./lookup.js";
import { Views } from "./views.js";

const EVERY_MS = 2_000;
const SLOWEST_MS = 10_000;
const LOOK_MS = 500;
const THEME = "streamrt-theme";

const views = new Views();
const lookup = new Lookup();
let timer = null;
let asking = false;
let failures = 0;
let awaySince = null;
let starts = null;
let announced = "";

// -- Asking -------------------------------------------------------------------------------------------------------------

async function refresh() {
  clearTimeout(timer);
  if (asking || document.hidden) return;
  asking = true;
  try {
    const found = await ask("GET", "/overview");
    // Another run may be of a program that has changed.
    if (starts !== found.process.starts || awaySince !== null) {
      const topology = await ask("GET", "/topology");
      views.topology(topology);
      lookup.stores(topology);
      starts = found.process.starts;
    }
    answered(found);
  } catch (error) {
    failed(error);
  } finally {
    asking = false;
    if (byId("access").hidden) timer = setTimeout(refresh, Math.min(EVERY_MS * 1.5 ** failures, SLOWEST_MS));
  }
}

function answered(found) {
  failures = 0;
  awaySince = null;
  notice(null);
  byId("access").hidden = true;
  byId("content").hidden = false;
  byId("forget").hidden = !hasToken();
  document.body.classList.remove("stale");
  const { status, desired_status: desired, group, since, waiting_for: waiting, error, paused_topics: paused, version } = found.status;
  state(status, desired === status || status === "failed" ? status : `${status}, wanted: ${desired}`);
  setText(byId("since"), waiting ? `waits for ${waiting}` : `since ${clock(Date.parse(since) / 1000)}`);
  setText(byId("group"), group);
  document.title = `${group}: ${status}`;
  setText(byId("version"), `StreamRT ${version}`.trim());
  setText(byId("seen"), `· seen at ${clock(found.at)}`);
  const active = !["stopped", "failed", "stopping"].includes(status);
  const working = ["running", "paused"].includes(status);
  enable({ pause: working && desired !== "paused", resume: active && (paused.length > 0 || desired === "paused"), checkpoint: working, stop: active });
  const more = error?.code ? ` (streamrt explain ${error.code} says more)` : "";
  const reasons = [...(error ? [`${error.error}: ${error.message}${more}`] : []), ...found.reasons];
  const list = byId("reasons");
  if (list.dataset.shown !== reasons.join("\n")) {
    list.replaceChildren(...reasons.map((reason) => el("li", {}, reason)));
    list.dataset.shown = reasons.join("\n");
  }
  list.hidden = reasons.length === 0;
  list.classList.toggle("bad", status === "failed" || working);
  views.show(found);
}

function failed(error) {
  enable({});
  if (error.status === 401) {
    // What was shown belongs to those who have the token.
    byId("content").hidden = true;
    byId("access").hidden = false;
    byId("forget").hidden = true;
    state("unknown", "locked");
    setText(byId("since"), "");
    notice(hasToken() ? "The application refuses this token." : null);
    clearTimeout(timer);
    useToken("");
    byId("token").focus();
    return;
  }
  failures += 1;
  if (error.status !== 0) {
    notice(error.message);
    return;
  }
  awaySince ??= Date.now() / 1000;
  document.body.classList.add("stale");
  state("unreachable", "unreachable");
  setText(byId("since"), `since ${clock(awaySince)}`);
  notice(`${error.message} This page tries again by itself.`);
}

// -- Showing ------------------------------------------------------------------------------------------------------------

function state(name, text) {
  const pill = byId("state");
  setText(pill, text);
  setAttribute(pill, "data-state", name);
  if (announced !== text) setText(byId("announce"), `The application is ${text}.`);
  announced = text;
}

function notice(text, bad = true) {
  const place = byId("notice");
  place.hidden = !text;
  place.classList.toggle("bad", bad);
  if (text) setText(place, text);
}

function enable(possible) {
  for (const id of ["pause", "resume", "checkpoint", "stop"]) byId(id).disabled = !possible[id];
}

// -- Changing -----------------------------------------------------------------------------------------------------------

async function change(path, words) {
  try {
    const answer = await ask("POST", path);
    if (answer.number !== undefined) follow(answer.number);
    await refresh();
    setText(byId("announce"), words);
  } catch (error) {
    if (error.status === 0 || error.status === 401) {
      failed(error);
      if (error.status === 0) timer = setTimeout(refresh, EVERY_MS);
    } else {
      toast(error.message, true);
    }
  }
}

// Says how a checkpoint ends.
async function follow(number) {
  toast(`Checkpoint ${number} is in progress.`);
  for (;;) {
    let found;
    try {
      found = await ask("GET", `/checkpoints/${number}`);
    } catch {
      return;
    }
    if (found.status !== "in progress") {
      toast(found.error ? `Checkpoint ${number}: ${found.error}` : `Checkpoint ${number}: ${found.status}.`, Boolean(found.error));
      return;
    }
    await new Promise((done) => setTimeout(done, LOOK_MS));
  }
}

let fading = null;
function toast(text, bad = false) {
  const place = byId("toast");
  setText(place, text);
  place.classList.toggle("bad", bad);
  place.hidden = false;
  clearTimeout(fading);
  fading = setTimeout(() => { place.hidden = true; }, 8_000);
}

byId("pause").addEventListener("click", () => change("/pause", "The application is being paused."));
byId("resume").addEventListener("click", () => change("/resume", "The application is being resumed."));
byId("checkpoint").addEventListener("click", () => change("/checkpoint", "A checkpoint was asked for."));
byId("stop").addEventListener("click", () => byId("confirm").showModal());
byId("confirm-no").addEventListener("click", () => byId("confirm").close());
byId("confirm-yes").addEventListener("click", () => {
  byId("confirm").close();
  change("/stop", "The application is being stopped.");
});

byId("access").addEventListener("submit", (event) => {
  event.preventDefault();
  const field = byId("token");
  const given = field.value.trim();
  field.value = "";
  // Other characters cannot be sent in a header.
  if (!/^[\x21-\x7e]+$/.test(given)) {
    notice("A token has printable ASCII characters only, and no space.");
    return;
  }
  useToken(given);
  byId("access").hidden = true;
  refresh();
});
byId("forget").addEventListener("click", () => {
  useToken("");
  refresh();
});

// -- The page -----------------------------------------------------------------------------------------------------------

function theme(name) {
  if (name) document.documentElement.dataset.theme = name;
  else delete document.documentElement.dataset.theme;
}

try {
  byId("theme").value = localStorage.getItem(THEME) ?? "";
} catch { /* without storage, the choice lasts until the page is left */ }
theme(byId("theme").value);
byId("theme").addEventListener("change", (event) => {
  theme(event.target.value);
  try {
    localStorage.setItem(THEME, event.target.value);
  } catch { /* see above */ }
});
document.addEventListener("visibilitychange", () => {
  // While the form for the token is shown, there is nothing to ask.
  if (byId("access").hidden) refresh();
});
refresh();
