"use strict";
const $ = (id) => document.getElementById(id);

// el makes an element. Texts become text nodes: nothing from a file is read as HTML.
function el(tag, attrs, ...children) {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(attrs || {})) {
    if (k.startsWith("on")) e.addEventListener(k.slice(2), v);
    else if (v !== null && v !== undefined && v !== false) e.setAttribute(k, v === true ? "" : v);
  }
  e.append(...present(children));
  return e;
}

// present are the children that are there; lists among them are taken apart.
const present = (children) => children.flat(2).filter((c) => c !== null && c !== undefined);

function svg(tag, attrs, ...children) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [k, v] of Object.entries(attrs || {})) e.setAttribute(k, v);
  e.append(...present(children));
  return e;
}

function clear(e, ...children) {
  e.replaceChildren(...present(children));
}

// shorten keeps the head and the tail of a long name.
function shorten(s, n) {
  if (s.length <= n) return s;
  const head = Math.ceil((n - 1) * 0.4);
  return s.slice(0, head) + "…" + s.slice(s.length - (n - 1 - head));
}

const number = (x) => Math.round(x).toString().replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");

const NBSP = "\u00a0"; // between a number and its unit

function bytes(n) {
  for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) if (Math.abs(n) >= size) return (n / size).toFixed(1) + NBSP + unit;
  return n + NBSP + "B";
}

function duration(ns) {
  for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]]) if (ns >= size) return (ns / size).toPrecision(3) + NBSP + unit;
  return Math.round(ns) + NBSP + "ns";
}

// colour reads a variable of the style, so that light and dark have their own.
const colours = new Map();
function colour(name) {
  let c = colours.get(name);
  if (!c) colours.set(name, (c = getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim()));
  return c;
}

// known is the dtype by whose colour a dtype is shown.
const known = (d) => (/^(f32|f16|bf16|f64)$/.test(d) ? d : "integer");

const dtypeColour = (d) => colour(known(d));
