package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// file is tokenizer.json.
type fileJSON struct {
	Added      []addedJSON     `json:"added_tokens"`
	Normalizer *partJSON       `json:"normalizer"`
	Split      *partJSON       `json:"pre_tokenizer"`
	Post       *partJSON       `json:"post_processor"`
	Decoder    *partJSON       `json:"decoder"`
	Model      json.RawMessage `json:"model"`
}

type addedJSON struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Special    bool   `json:"special"`
}

// partJSON is a normalizer, a pre-tokenizer, a post-processor or a decoder: the fields
// of all kinds.
type partJSON struct {
	Type          string     `json:"type"`
	Normalizers   []partJSON `json:"normalizers"`
	PreTokenizers []partJSON `json:"pretokenizers"`
	Processors    []partJSON `json:"processors"`
	Decoders      []partJSON `json:"decoders"`

	Prepend string  `json:"prepend"`
	Content *string `json:"content"`
	Pattern struct {
		String *string `json:"String"`
		Regex  *string `json:"Regex"`
	} `json:"pattern"`
	CleanText    *bool `json:"clean_text"`
	Chinese      *bool `json:"handle_chinese_chars"`
	StripAccents *bool `json:"strip_accents"`
	Lowercase    *bool `json:"lowercase"`

	Behavior         string `json:"behavior"`
	Invert           bool   `json:"invert"`
	AddPrefixSpace   *bool  `json:"add_prefix_space"`
	UseRegex         *bool  `json:"use_regex"`
	IndividualDigits bool   `json:"individual_digits"`
	Replacement      string `json:"replacement"`
	PrependScheme    string `json:"prepend_scheme"`

	Single  []pieceJSON `json:"single"`
	Pair    []pieceJSON `json:"pair"`
	Special map[string]struct {
		IDs []int32 `json:"ids"`
	} `json:"special_tokens"`
	CLS   []any `json:"cls"`
	SEP   []any `json:"sep"`
	Start int   `json:"start"`
}

type pieceJSON struct {
	Special  *struct{ ID string } `json:"SpecialToken"`
	Sequence *struct{ ID string } `json:"Sequence"`
}

type modelJSON struct {
	Type         string           `json:"type"`
	Vocab        map[string]int32 `json:"vocab"`
	Merges       []mergeJSON      `json:"merges"`
	Unknown      *string          `json:"unk_token"`
	Prefix       *string          `json:"continuing_subword_prefix"`
	Suffix       *string          `json:"end_of_word_suffix"`
	FuseUnknown  bool             `json:"fuse_unk"`
	ByteFallback bool             `json:"byte_fallback"`
	IgnoreMerges bool             `json:"ignore_merges"`
	Dropout      *float64         `json:"dropout"`
	Longest      int              `json:"max_input_chars_per_word"`
}

// mergeJSON is "a b" or ["a", "b"].
type mergeJSON [2]string

func (m *mergeJSON) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '[' {
		return json.Unmarshal(b, (*[2]string)(m))
	}
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	left, right, ok := strings.Cut(s, " ")
	if !ok {
		return fmt.Errorf("the merge %q is not two tokens", s)
	}
	*m = mergeJSON{left, right}
	return nil
}

// maxID is the largest id that a token may have: four times the largest published.
const maxID = 1<<20 - 1

// Parse reads the content of a tokenizer.json.
func Parse(b []byte) (*Tokenizer, error) {
	var f fileJSON
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, fmt.Errorf("not a tokenizer.json: %w", err)
	}
	var kind struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(f.Model, &kind); err != nil {
		return nil, fmt.Errorf("not a tokenizer.json: its model: %w", err)
	}
	if kind.Type == "Unigram" || kind.Type == "WordLevel" {
		return nil, fmt.Errorf("its model is of the type %s, want BPE or WordPiece", kind.Type)
	}
	var m modelJSON
	if err := json.Unmarshal(f.Model, &m); err != nil {
		return nil, fmt.Errorf("not a tokenizer.json: its model: %w", err)
	}
	return build(&f, &m)
}

func build(f *fileJSON, m *modelJSON) (*Tokenizer, error) {
	t := &Tokenizer{vocab: map[string]int32{}, special: map[int32]bool{}}
	for token, id := range m.Vocab {
		if id < 0 || int(id) > maxID {
			return nil, fmt.Errorf("token %q has the id %d in a vocabulary of %d", token, id, len(m.Vocab))
		}
		t.insert(token, id)
	}
	level := false
	for _, p := range flat(f.Split, func(p partJSON) []partJSON { return p.PreTokenizers }) {
		level = level || p.Type == "ByteLevel"
	}
	if err := t.setModel(m, level); err != nil {
		return nil, err
	}
	for _, a := range f.Added {
		if a.SingleWord || a.Content == "" || a.ID < 0 || int(a.ID) > maxID {
			return nil, fmt.Errorf("the added token %q with the id %d: single_word is not supported, and it needs a content and an id below 2^20", a.Content, a.ID)
		}
		t.insert(a.Content, a.ID)
		t.addToken(added{a.Content, a.ID, a.LStrip, a.RStrip}, a.Special)
	}
	for _, read := range []func() error{
		func() error { return t.setNormalizer(f.Normalizer) },
		func() error { return t.setSplit(f.Split) },
		func() error { return t.setPost(f.Post) },
		func() error { return t.setDecoder(f.Decoder) },
	} {
		if err := read(); err != nil {
			return nil, err
		}
	}
	for _, name := range []string{"[PAD]", "<pad>", "<|pad|>"} {
		if id, ok := t.vocab[name]; ok {
			t.pad = id
			break
		}
	}
	return t, nil
}

// addToken makes a token one that is found before anything else; of two at one place
// the longer one.
func (t *Tokenizer) addToken(a added, special bool) {
	at := 0
	for at < len(t.added) && len(t.added[at].content) >= len(a.content) {
		at++
	}
	t.added = append(t.added[:at], append([]added{a}, t.added[at:]...)...)
	t.special[a.id] = special
}

// flat lists the parts of a sequence, or the part itself.
func flat(p *partJSON, parts func(partJSON) []partJSON) []partJSON {
	switch {
	case p == nil:
		return nil
	case p.Type != "Sequence":
		return []partJSON{*p}
	}
	var out []partJSON
	for _, q := range parts(*p) {
		out = append(out, flat(&q, parts)...)
	}
	return out
}

func is(flag *bool, def bool) bool {
	if flag == nil {
		return def
	}
	return *flag
}

func (t *Tokenizer) setModel(m *modelJSON, level bool) error {
	unknown := int32(-1)
	if m.Unknown != nil && *m.Unknown != "" {
		id, ok := m.Vocab[*m.Unknown]
		if !ok {
			return fmt.Errorf("the vocabulary lacks its unk_token %q", *m.Unknown)
		}
		unknown = id
	}
	if m.Type == "WordPiece" || m.Type == "" && m.Longest > 0 {
		if unknown < 0 {
			return errors.New("a WordPiece model without an unk_token")
		}
		p := &wordPiece{vocab: m.Vocab, prefix: "##", unknown: unknown, longest: 100}
		if m.Prefix != nil {
			p.prefix = *m.Prefix
		}
		if m.Longest > 0 {
			p.longest = m.Longest
		}
		t.model = p.encode
		return nil
	}
	if m.Type != "BPE" && m.Type != "" {
		return fmt.Errorf("its model is of the type %q, want BPE or WordPiece", m.Type)
	}
	if m.Prefix != nil && *m.Prefix != "" || m.Suffix != nil && *m.Suffix != "" || m.Dropout != nil && *m.Dropout != 0 {
		return errors.New("a BPE model with continuing_subword_prefix, end_of_word_suffix or dropout, which are not supported")
	}
	b := &bpe{vocab: m.Vocab, whole: m.IgnoreMerges, unknown: unknown, fuse: m.FuseUnknown}
	merges := make([][2]string, len(m.Merges))
	for i, x := range m.Merges {
		merges[i] = x
	}
	err := b.addMerges(merges)
	if err == nil && level {
		err = b.byteLevel()
	} else if err == nil && m.ByteFallback {
		err = b.byteFallback()
	}
	if level && b.whole { // words of the vocabulary are spelled, those of the text are bytes
		words := make(map[string]int32, len(m.Vocab))
		for token, id := range m.Vocab {
			words[string(unspell(token, nil))] = id
		}
		b.vocab = words
	}
	t.model = b.encode
	return err
}

func (t *Tokenizer) setNormalizer(p *partJSON) error {
	for _, p := range flat(p, func(p partJSON) []partJSON { return p.Normalizers }) {
		var f func(string) string
		switch p.Type {
		case "Prepend":
			f = func(s string) string { return p.Prepend + s }
		case "Replace":
			if p.Pattern.String == nil || p.Content == nil {
				return errors.New("a normalizer Replace of a pattern, want one of a string")
			}
			f = func(s string) string { return strings.ReplaceAll(s, *p.Pattern.String, *p.Content) }
		case "Lowercase":
			f = lower
		case "NFC":
			f = norm.NFC.String
		case "NFD":
			f = norm.NFD.String
		case "NFKC":
			f = norm.NFKC.String
		case "NFKD":
			f = norm.NFKD.String
		case "StripAccents":
			f = stripAccents
		case "BertNormalizer":
			lowered := is(p.Lowercase, true)
			f = bertNormalizer{is(p.CleanText, true), is(p.Chinese, true), is(p.StripAccents, lowered), lowered}.normalize
		default:
			return fmt.Errorf("its normalizer is of the type %q, which is not supported", p.Type)
		}
		t.normalize = append(t.normalize, f)
	}
	return nil
}

func (t *Tokenizer) setSplit(p *partJSON) error {
	for _, p := range flat(p, func(p partJSON) []partJSON { return p.PreTokenizers }) {
		var f func([]string) []string
		switch p.Type {
		case "BertPreTokenizer":
			f = each(bertWords)
		case "Split":
			if p.Pattern.Regex == nil || p.Behavior != "Isolated" || p.Invert {
				return fmt.Errorf("its pre-tokenizer splits with the behavior %q: want Isolated, by a regular expression, not inverted", p.Behavior)
			}
			s, err := newSplitter(*p.Pattern.Regex)
			if err != nil {
				return err
			}
			f = each(s.words)
		case "Digits":
			pattern := `\p{N}+`
			if p.IndividualDigits {
				pattern = `\p{N}`
			}
			s, err := newSplitter(pattern)
			if err != nil {
				return err
			}
			f = each(s.words)
		case "ByteLevel":
			var err error
			if f, err = byteLevelSplit(p); err != nil {
				return err
			}
		default:
			return fmt.Errorf("its pre-tokenizer is of the type %q, which is not supported", p.Type)
		}
		t.split = append(t.split, f)
	}
	return nil
}

func byteLevelSplit(p partJSON) (func([]string) []string, error) {
	s, err := newSplitter(gpt2Pattern)
	if err != nil {
		return nil, err
	}
	space, split := is(p.AddPrefixSpace, true), is(p.UseRegex, true)
	return each(func(w string, out []string) []string {
		if space && !strings.HasPrefix(w, " ") {
			w = " " + w
		}
		if split {
			return s.words(w, out)
		}
		return append(out, w)
	}), nil
}

func (t *Tokenizer) setPost(p *partJSON) error {
	for _, p := range flat(p, func(p partJSON) []partJSON { return p.Processors }) {
		switch p.Type {
		case "ByteLevel": // changes offsets, which are not here
		case "TemplateProcessing":
			if err := t.setTemplate(p); err != nil {
				return err
			}
		case "BertProcessing":
			cls, first := idOf(p.CLS)
			sep, second := idOf(p.SEP)
			if !first || !second {
				return errors.New("its post-processor has no cls and sep")
			}
			t.before, t.after, t.second = []int32{cls}, []int32{sep}, [2][]int32{nil, {sep}}
		default:
			return fmt.Errorf("its post-processor is of the type %q, which is not supported", p.Type)
		}
	}
	return nil
}

// idOf reads ["[SEP]", 102].
func idOf(v []any) (int32, bool) {
	if len(v) != 2 {
		return 0, false
	}
	x, ok := v[1].(float64)
	return int32(x), ok
}

func (t *Tokenizer) setTemplate(p partJSON) error {
	put := map[string]*[]int32{} // what is being filled after each sequence
	walk := func(pieces []pieceJSON, first *[]int32, after map[string]*[]int32) error {
		to := first
		for _, x := range pieces {
			switch {
			case x.Sequence != nil:
				if to = after[x.Sequence.ID]; to == nil {
					return fmt.Errorf("its post-processor has a sequence %q", x.Sequence.ID)
				}
			case x.Special != nil:
				s, ok := p.Special[x.Special.ID]
				if !ok {
					return fmt.Errorf("its post-processor names the token %q, which it does not explain", x.Special.ID)
				}
				*to = append(*to, s.IDs...)
			}
		}
		return nil
	}
	put["A"] = &t.after
	if err := walk(p.Single, &t.before, put); err != nil {
		return err
	}
	var before, between, end []int32
	if err := walk(p.Pair, &before, map[string]*[]int32{"A": &between, "B": &end}); err != nil {
		return err
	}
	if n := len(t.after); n <= len(between) { // what follows the first text in both, then what begins the second
		t.second = [2][]int32{between[n:], end}
	}
	return nil
}

func (t *Tokenizer) setDecoder(p *partJSON) error {
	parts := flat(p, func(p partJSON) []partJSON { return p.Decoders })
	var steps []func([]string) []string
	for _, p := range parts {
		switch p.Type {
		case "ByteLevel":
			steps = append(steps, func(w []string) []string { return []string{string(unspell(strings.Join(w, ""), nil))} })
		case "WordPiece":
			steps = append(steps, joinWordPieces)
		case "Replace":
			if p.Pattern.String == nil || p.Content == nil {
				return errors.New("a decoder Replace of a pattern, want one of a string")
			}
			steps = append(steps, eachWord(func(s string) string { return strings.ReplaceAll(s, *p.Pattern.String, *p.Content) }))
		case "ByteFallback":
			steps = append(steps, joinBytes)
		case "Fuse":
			steps = append(steps, func(w []string) []string { return []string{strings.Join(w, "")} })
		case "Strip":
			steps = append(steps, eachWord(func(s string) string {
				for range p.Start {
					s = strings.TrimPrefix(s, *p.Content)
				}
				return s
			}))
			if p.Content == nil {
				return errors.New("a decoder Strip without content")
			}
		default:
			return fmt.Errorf("its decoder is of the type %q, which is not supported", p.Type)
		}
	}
	t.decode = func(t *Tokenizer, ids []int32) string {
		words := make([]string, len(ids))
		for i, id := range ids {
			words[i] = t.tokens[id]
		}
		for _, f := range steps {
			words = f(words)
		}
		if len(steps) == 0 {
			return strings.Join(words, " ")
		}
		return strings.Join(words, "")
	}
	return nil
}

func eachWord(f func(string) string) func([]string) []string {
	return func(words []string) []string {
		for i, w := range words {
			words[i] = f(w)
		}
		return words
	}
}

func joinWordPieces(words []string) []string {
	for i, w := range words {
		if rest, ok := strings.CutPrefix(w, "##"); ok && i > 0 {
			words[i] = rest
		} else if i > 0 {
			words[i] = " " + w
		}
	}
	return words
}

// joinBytes makes characters of tokens such as <0xE2>; bytes that make none are each
// U+FFFD.
func joinBytes(words []string) []string {
	var out []string
	var run []byte
	flush := func() {
		if utf8.Valid(run) {
			out = append(out, string(run))
		} else {
			out = append(out, strings.Repeat("\uFFFD", len(run)))
		}
		run = nil
	}
	for _, w := range words {
		var c byte
		if len(w) == 6 && strings.HasPrefix(w, "<0x") {
			if _, err := fmt.Sscanf(w, "<0x%02X>", &c); err == nil {
				run = append(run, c)
				continue
			}
		}
		if len(run) > 0 {
			flush()
		}
		out = append(out, w)
	}
	if len(run) > 0 {
		flush()
	}
	return out
}
