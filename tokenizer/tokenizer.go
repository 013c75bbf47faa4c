// Package tokenizer turns text into the token ids of published language models and
// back. It reads Hugging Face's tokenizer.json with byte-level BPE (GPT-2, Llama 3,
// SmolLM), SentencePiece's BPE (Llama 2, TinyLlama, Mistral) and WordPiece (BERT), and
// the older files vocab.json with merges.txt, encoder.json with vocab.bpe, and vocab.txt.
//
//	t, err := tokenizer.Open("gpt2") // the folder of the model
//	ids := t.Encode("Hello, world")
//	text := t.Decode(ids)
package tokenizer

import (
	"slices"
	"strings"
)

// Tokenizer encodes and decodes text. Its methods may be called concurrently.
type Tokenizer struct {
	vocab     map[string]int32
	tokens    []string // by id, as the vocabulary spells them; "" where there is none
	special   map[int32]bool
	added     []added // longest first
	normalize []func(string) string
	split     []func([]string) []string
	model     func(word string, out []int32) []int32
	before    []int32 // put around a text
	after     []int32
	second    [2][]int32 // put around the second text of a pair, without before
	decode    func(t *Tokenizer, ids []int32) string
	pad       int32
}

// added is a token that is found in the text before anything else.
type added struct {
	content        string
	id             int32
	lstrip, rstrip bool // takes the spaces before or behind it
}

// Encode returns the ids of text, with the special tokens that the model puts around
// a text, such as [CLS] and [SEP] of BERT or <s> of Llama 2.
func (t *Tokenizer) Encode(text string) []int32 {
	return slices.Concat(t.before, t.EncodePlain(text), t.after)
}

// EncodePlain returns the ids of text alone. A special token that stands in the text
// becomes its id.
func (t *Tokenizer) EncodePlain(text string) []int32 {
	var out []int32
	for text != "" {
		at, a := t.findAdded(text)
		if a == nil {
			return t.encodePart(text, out)
		}
		part := text[:at]
		if a.lstrip {
			part = strings.TrimRightFunc(part, isSpace)
		}
		if part != "" {
			out = t.encodePart(part, out)
		}
		out, text = append(out, a.id), text[at+len(a.content):]
		if a.rstrip {
			text = strings.TrimLeftFunc(text, isSpace)
		}
	}
	return out
}

// EncodePair returns the ids of two texts that belong together, and for each id
// whether it is of the first text (0) or of the second (1).
func (t *Tokenizer) EncodePair(first, second string) (ids, types []int32) {
	a := slices.Concat(t.before, t.EncodePlain(first), t.after)
	b := slices.Concat(t.second[0], t.EncodePlain(second), t.second[1])
	types = make([]int32, len(a)+len(b))
	for i := range b {
		types[len(a)+i] = 1
	}
	return append(a, b...), types
}

// Batch encodes texts to rows of length ids each: longer texts lose their end except for
// the special tokens, shorter ones are padded. mask is 1 for tokens and 0 for padding.
func (t *Tokenizer) Batch(length int, texts ...string) (ids []int32, mask []float32) {
	ids, mask = make([]int32, length*len(texts)), make([]float32, length*len(texts))
	for i, text := range texts {
		plain := t.EncodePlain(text)
		room := max(length-len(t.before)-len(t.after), 0)
		row := slices.Concat(t.before, plain[:min(len(plain), room)], t.after)
		n := copy(ids[i*length:(i+1)*length], row)
		for k := range length {
			if k < n {
				mask[i*length+k] = 1
			} else {
				ids[i*length+k] = t.pad
			}
		}
	}
	return ids, mask
}

// Decode returns the text of ids. Special tokens and ids that the vocabulary lacks are
// left out.
func (t *Tokenizer) Decode(ids []int32) string {
	var plain []int32
	for _, id := range ids {
		if !t.special[id] && id >= 0 && int(id) < len(t.tokens) && t.tokens[id] != "" {
			plain = append(plain, id)
		}
	}
	return t.decode(t, plain)
}

// ID returns the id of a token as the vocabulary spells it.
func (t *Tokenizer) ID(token string) (int32, bool) {
	id, ok := t.vocab[token]
	return id, ok
}

// Token returns how the vocabulary spells an id, "" where it has none.
func (t *Tokenizer) Token(id int32) string {
	if id < 0 || int(id) >= len(t.tokens) {
		return ""
	}
	return t.tokens[id]
}

// Size is one more than the largest id.
func (t *Tokenizer) Size() int { return len(t.tokens) }

// findAdded finds the first added token in text, of those the longest.
func (t *Tokenizer) findAdded(text string) (at int, found *added) {
	at = len(text)
	for i := range t.added {
		if k := strings.Index(text[:min(len(text), at+len(t.added[i].content))], t.added[i].content); k >= 0 && k < at {
			at, found = k, &t.added[i]
		}
	}
	return at, found
}

// encodePart encodes text without added tokens.
func (t *Tokenizer) encodePart(text string, out []int32) []int32 {
	for _, f := range t.normalize {
		text = f(text)
	}
	words := []string{text}
	for _, f := range t.split {
		words = f(words)
	}
	for _, w := range words {
		if w != "" {
			out = t.model(w, out)
		}
	}
	return out
}

// insert adds a token to the vocabulary.
func (t *Tokenizer) insert(token string, id int32) {
	t.vocab[token] = id
	for int(id) >= len(t.tokens) {
		t.tokens = append(t.tokens, make([]string, int(id)+1-len(t.tokens))...)
	}
	t.tokens[id] = token
}
