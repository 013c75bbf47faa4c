// Runs models in onnxruntime: a line of JSON in, a line of JSON out.
// {"model": path, "inputs": {name: {"type", "dims", "data": base64}}}
// {"error": text} or {"outputs": [{"name", "type", "dims", "data"}]}
const ort = require('onnxruntime-node');
const arrays = {float32: Float32Array, float64: Float64Array, float16: Uint16Array, int8: Int8Array, uint8: Uint8Array, int16: Int16Array,
  uint16: Uint16Array, int32: Int32Array, uint32: Uint32Array, int64: BigInt64Array, uint64: BigUint64Array, bool: Uint8Array};

function tensor(t) {
  const b = Buffer.from(t.data, 'base64');
  const bytes = b.buffer.slice(b.byteOffset, b.byteOffset + b.length);
  return new ort.Tensor(t.type, new arrays[t.type](bytes), t.dims);
}

async function run(job) {
  const s = await ort.InferenceSession.create(job.model, {logSeverityLevel: 4, intraOpNumThreads: 1, graphOptimizationLevel: job.level || 'all'});
  try {
    if (!job.inputs) return {outputs: []};
    const feeds = {};
    for (const [name, t] of Object.entries(job.inputs)) feeds[name] = tensor(t);
    const r = await s.run(feeds);
    return {outputs: s.outputNames.map((name) => {
      const t = r[name], d = t.data;
      return {name, type: t.type, dims: t.dims.map(Number), data: Buffer.from(d.buffer, d.byteOffset, d.byteLength).toString('base64')};
    })};
  } finally {
    await s.release();
  }
}

const lines = require('readline').createInterface({input: process.stdin});
let last = Promise.resolve();
lines.on('line', (line) => {
  last = last.then(() => run(JSON.parse(line))).catch((e) => ({error: String(e.message || e)})).then((r) => process.stdout.write(JSON.stringify(r) + '\n'));
});
