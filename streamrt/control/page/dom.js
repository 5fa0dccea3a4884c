// Elements and texts. All text from data goes through textContent or attributes: nothing here parses HTML.

const SVG = "http://www.w3.org/2000/svg";

// Characters that cannot be seen, or change the order of others, are shown as their codes: names and errors may have any.
const hidden = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
const readable = (text) => text.replace(hidden, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`);

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.map((child) => (typeof child === "string" ? readable(child) : child)));
  return node;
}

export const byId = (id) => document.getElementById(id);
export const el = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

// Texts and attributes are written only where they change: the browser lays out nothing for the rest.
export function setText(node, text) {
  const shown = text === null || text === undefined ? "" : readable(String(text));
  if (node.textContent !== shown) node.textContent = shown;
}

export function setAttribute(node, name, value) {
  if (value === null) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const number = (value) => (value === null || value === undefined ? "–" : whole.format(value));
export const brief = (value) => (value === null || value === undefined ? "–" : short.format(value));
export const rate = (value) => (value === null || value === undefined ? "–" : `${short.format(value < 10 ? value : Math.round(value))}/s`);
export const plural = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;

export function size(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let index = 0;
  for (; bytes >= 1024 && index < units.length - 1; index += 1) bytes /= 1024;
  return `${bytes < 10 && index > 0 ? bytes.toFixed(1) : Math.round(bytes)} ${units[index]}`;
}

export function duration(seconds) {
  if (seconds < 0.9995) return `${Math.max(0, Math.round(seconds * 1000))} ms`;
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

export const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString("en-GB");
export const moment = (seconds) => `${new Date(seconds * 1000).toISOString().slice(0, 19).replace("T", " ")} UTC`;
