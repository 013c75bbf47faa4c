const index = JSON.parse($("index").textContent);
const blocks = new Map();

// block is the promise of a document: from this file, or from the server that it came from.
function block(name) {
  if (!blocks.has(name)) blocks.set(name, read(name));
  return blocks.get(name);
}

async function read(name) {
  const tag = $("block-" + name);
  if (tag) {
    const text = atob(tag.textContent);
    const raw = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) raw[i] = text.charCodeAt(i);
    return new Response(new Blob([raw]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
  }
  if (!index.served) throw new Error("this file has no " + name);
  const r = await fetch("data/" + encodeURIComponent(name) + location.search);
  if (!r.ok) throw new Error((await r.text()).trim());
  return r.json();
}

const has = (name) => index.blocks.some(([n]) => n === name);
