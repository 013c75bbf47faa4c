package tokenizer

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"ampc/internal/file"
)

// Open reads a tokenizer.json, a vocab.txt of BERT (as the uncased models have it), or
// the files in a folder: one of these, vocab.json with merges.txt, or encoder.json with
// vocab.bpe of GPT-2. Each error is one line that begins with the path.
func Open(path string) (*Tokenizer, error) {
	is, err := os.Stat(path)
	if err != nil {
		return nil, file.Error(path, err)
	}
	if is.IsDir() {
		return openFolder(path)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, file.Error(path, err)
	}
	var t *Tokenizer
	if filepath.Ext(path) == ".txt" {
		t, err = parseVocab(string(b))
	} else {
		t, err = Parse(b)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

func openFolder(dir string) (*Tokenizer, error) {
	has := func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return !errors.Is(err, fs.ErrNotExist)
	}
	for _, name := range []string{"tokenizer.json", "vocab.txt"} {
		if has(name) {
			return Open(filepath.Join(dir, name))
		}
	}
	for _, names := range [][2]string{{"vocab.json", "merges.txt"}, {"encoder.json", "vocab.bpe"}} {
		if has(names[0]) && has(names[1]) {
			t, err := openGPT2(filepath.Join(dir, names[0]), filepath.Join(dir, names[1]))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", dir, err)
			}
			return t, nil
		}
	}
	return nil, fmt.Errorf("%s: the folder holds no tokenizer.json, no vocab.txt and no vocab.json with merges.txt", dir)
}

// openGPT2 reads a byte-level BPE in two files.
func openGPT2(vocab, merges string) (*Tokenizer, error) {
	b, err := os.ReadFile(vocab)
	if err != nil {
		return nil, err
	}
	m := &modelJSON{Type: "BPE"}
	if err := json.Unmarshal(b, &m.Vocab); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Base(vocab), err)
	}
	if b, err = os.ReadFile(merges); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(strings.NewReader(string(b)))
	for lines.Scan() {
		left, right, ok := strings.Cut(lines.Text(), " ")
		if ok && !strings.HasPrefix(lines.Text(), "#version") {
			m.Merges = append(m.Merges, mergeJSON{left, right})
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Base(merges), err)
	}
	no := false
	f := &fileJSON{Split: &partJSON{Type: "ByteLevel", AddPrefixSpace: &no}, Decoder: &partJSON{Type: "ByteLevel"}}
	if id, ok := m.Vocab["<|endoftext|>"]; ok {
		f.Added = []addedJSON{{ID: id, Content: "<|endoftext|>", Special: true}}
	}
	return build(f, m)
}

// parseVocab reads the vocabulary of an uncased BERT, a token a line.
func parseVocab(text string) (*Tokenizer, error) {
	m := &modelJSON{Type: "WordPiece", Vocab: map[string]int32{}}
	id := int32(0)
	for line := range strings.Lines(text) {
		m.Vocab[strings.TrimRight(line, "\r\n")] = id
		id++
	}
	unknown := "[UNK]"
	m.Unknown = &unknown
	f := &fileJSON{Normalizer: &partJSON{Type: "BertNormalizer"}, Split: &partJSON{Type: "BertPreTokenizer"}, Decoder: &partJSON{Type: "WordPiece"}}
	special := func(name string) []any { return []any{name, float64(m.Vocab[name])} }
	for _, name := range []string{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"} {
		id, ok := m.Vocab[name]
		if !ok {
			return nil, fmt.Errorf("the vocabulary of a BERT lacks %s", name)
		}
		f.Added = append(f.Added, addedJSON{ID: id, Content: name, Special: true})
	}
	f.Post = &partJSON{Type: "BertProcessing", CLS: special("[CLS]"), SEP: special("[SEP]")}
	return build(f, m)
}
