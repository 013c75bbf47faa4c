// Times ONNX models in onnxruntime-node, which lies in the node_modules of the current
// folder: a line of JSON in, a line of JSON out.
// {"model", "threads", "inputs": {name: {"type", "dims", "data": base64}}} opens a session;
// {"runs"} runs it, and the reply has milliseconds of each run; {"end"} frees it.
const ort = require('onnxruntime-node');
const arrays = {float32: Float32Array, int64: BigInt64Array};
let session, feeds;

function tensor(t) {
  const b = Buffer.from(t.data, 'base64');
  return new ort.Tensor(t.type, new arrays[t.type](b.buffer.slice(b.byteOffset, b.byteOffset + b.length)), t.dims);
}

async function handle(job) {
  if (job.model) {
    session = await ort.InferenceSession.create(job.model, {logSeverityLevel: 4, intraOpNumThreads: job.threads, interOpNumThreads: 1});
    feeds = Object.fromEntries(Object.entries(job.inputs).map(([name, t]) => [name, tensor(t)]));
    return {};
  }
  if (job.end) {
    await session.release();
    return {};
  }
  const times = [];
  for (let i = 0; i < job.runs; i++) {
    const start = process.hrtime.bigint();
    await session.run(feeds);
    times.push(Number(process.hrtime.bigint() - start) / 1e6);
  }
  return {times, rss: process.memoryUsage().rss};
}

const lines = require('readline').createInterface({input: process.stdin});
let last = Promise.resolve();
lines.on('line', (line) => {
  last = last.then(() => handle(JSON.parse(line))).catch((e) => ({error: String(e.message || e)})).then((r) => process.stdout.write(JSON.stringify(r) + '\n'));
});
