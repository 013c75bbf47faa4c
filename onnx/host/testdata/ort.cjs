// Runs an ONNX model in onnxruntime-node: jobs come as lines of JSON, {model, inputs:
// [{name, type, dims, data}]} with data in base64; a line with the outputs, or an
// error, goes back for each. The argument is the folder that has node_modules.
const { createRequire } = require("module");
const path = require("path");
const ort = createRequire(path.join(process.argv[2], "x.js"))("onnxruntime-node");
const arrays = {
  float32: Float32Array, float64: Float64Array, int32: Int32Array, int64: BigInt64Array, uint8: Uint8Array, bool: Uint8Array,
  float16: Uint16Array, int8: Int8Array, uint16: Uint16Array, int16: Int16Array, uint32: Uint32Array, uint64: BigUint64Array,
};
let model = "", session;
async function run(job) {
  if (job.model !== model) {
    session = await ort.InferenceSession.create(job.model, { intraOpNumThreads: 1, logSeverityLevel: 3 });
    model = job.model;
  }
  const feeds = {};
  for (const x of job.inputs) {
    const b = Buffer.from(x.data, "base64");
    const copy = b.buffer.slice(b.byteOffset, b.byteOffset + b.length);
    feeds[x.name] = new ort.Tensor(x.type, new arrays[x.type](copy), x.dims);
  }
  const out = await session.run(feeds);
  return Object.entries(out).map(([name, t]) => ({
    name, type: t.type, dims: t.dims, data: Buffer.from(t.data.buffer, t.data.byteOffset, t.data.byteLength).toString("base64"),
  }));
}
(async () => {
  for await (const line of require("readline").createInterface({ input: process.stdin })) {
    let reply;
    try {
      reply = { outputs: await run(JSON.parse(line)) };
    } catch (e) {
      reply = { error: String(e.message || e) };
    }
    process.stdout.write(JSON.stringify(reply) + "\n");
  }
})();
