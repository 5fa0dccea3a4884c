// Bars of the last two minutes, one for each second.

import { el, setAttribute, setText, svg } from "./dom.js";

export const SECONDS = 120;
const HEIGHT = 40;

export class Bars {
  // title: what is shown. format: makes a text of a value.
  constructor(title, format) {
    this.format = format;
    this.bars = Array.from({ length: SECONDS }, (_, index) => svg("rect", { x: index, width: 0.82, y: HEIGHT, height: 0 }));
    this.drawing = svg("svg", { role: "img", viewBox: `0 0 ${SECONDS} ${HEIGHT}`, preserveAspectRatio: "none" }, ...this.bars);
    this.title = title;
    this.heading = el("h3", {}, title);
    this.summary = el("p", { class: "muted" });
    const axis = el("p", { class: "axis muted", "aria-hidden": "true" }, el("span", {}, "2 min ago"), el("span", {}, "now"));
    this.root = el("div", { class: "chart" }, el("div", { class: "head" }, this.heading, this.summary), this.drawing, axis);
  }

  rename(title) {
    this.title = title;
    setText(this.heading, title);
  }

  // values: one for each second, the oldest first; 0 where nothing was reported.
  update(values) {
    const most = Math.max(...values);
    const text = most > 0 ? `last ${this.format(values[values.length - 1])}, most ${this.format(most)}` : "none";
    setText(this.summary, text);
    setAttribute(this.drawing, "aria-label", `${this.title}, last two minutes: ${text}`);
    values.forEach((value, index) => {
      // What is not zero can be seen.
      const height = value > 0 ? Math.max(1, (value / most) * HEIGHT) : 0;
      setAttribute(this.bars[index], "y", (HEIGHT - height).toFixed(2));
      setAttribute(this.bars[index], "height", height.toFixed(2));
    });
  }
}
