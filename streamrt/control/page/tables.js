// Tables whose rows stay where they are while their numbers change.

import { el, setAttribute, setText } from "./dom.js";

export class Table {
  // columns: {title, value(row), text(row), numeric, look, state(row), link(row)}. link: an address, or null. key: names a row. empty: the text without rows.
  constructor(container, { caption, columns, key, empty, sortBy = 0, descending = false }) {
    Object.assign(this, { columns, key, sortBy, descending });
    this.rows = new Map();
    this.shown = [];
    this.data = [];
    this.body = el("tbody");
    this.nothing = el("p", { class: "muted" }, empty);
    this.buttons = columns.map((column, index) => {
      const button = el("button", { type: "button" }, column.title);
      button.addEventListener("click", () => this.sort(index));
      return button;
    });
    this.heads = this.buttons.map((button, index) => el("th", { scope: "col", class: columns[index].numeric ? "number" : null }, button));
    this.table = el("table", {}, el("caption", { class: "hidden-text" }, caption), el("thead", {}, el("tr", {}, ...this.heads)), this.body);
    container.replaceChildren(this.table, this.nothing);
    this.update([]);
  }

  sort(index) {
    this.descending = this.sortBy === index ? !this.descending : Boolean(this.columns[index].numeric);
    this.sortBy = index;
    this.update(this.data);
  }

  update(data) {
    this.data = data;
    const { value } = this.columns[this.sortBy];
    const sign = this.descending ? -1 : 1;
    // Sorting keeps the order of equal rows, which is that of the server.
    const sorted = [...data].sort((a, b) => sign * compare(value(a), value(b)));
    const order = sorted.map((row) => {
      const key = this.key(row);
      let shown = this.rows.get(key);
      if (!shown) {
        const cells = this.columns.map((column) => el("td", { class: column.numeric ? "number" : column.look }));
        shown = { row: el("tr", {}, ...cells), cells };
        this.rows.set(key, shown);
      }
      this.columns.forEach((column, index) => {
        const text = String((column.text ?? column.value)(row));
        if (column.link) setLink(shown.cells[index], text, column.link(row));
        else setText(shown.cells[index], text);
        if (column.state) setAttribute(shown.cells[index], "data-state", column.state(row));
      });
      return shown.row;
    });
    if (order.length !== this.shown.length || order.some((row, index) => row !== this.shown[index])) {
      this.body.replaceChildren(...order);
      this.shown = order;
      const kept = new Set(order);
      for (const [key, { row }] of this.rows) if (!kept.has(row)) this.rows.delete(key);
    }
    this.heads.forEach((head, index) => setAttribute(head, "aria-sort", index === this.sortBy ? (this.descending ? "descending" : "ascending") : null));
    this.table.hidden = data.length === 0;
    this.nothing.hidden = data.length > 0;
  }
}

// A text that leads to another page, or only the text.
function setLink(cell, text, address) {
  const link = cell.querySelector("a");
  if (address === null) {
    if (link) link.remove();
    setText(cell, text);
  } else if (link) {
    setText(link, text);
    setAttribute(link, "href", address);
  } else cell.replaceChildren(el("a", { href: address, rel: "noreferrer" }, text));
}

function compare(a, b) {
  // Unknown values come first, and so last where the largest come first.
  if (a === null || b === null) return (a !== null) - (b !== null);
  return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
}
