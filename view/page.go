// Package view makes pages that show a compilation in a browser: the graph with the
// reason of every dtype, the program and its memory, a bad step, a training run. A page is
// one HTML file that needs nothing else, or is served on the loopback address.
package view

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"strings"
)

// Block is one document of a page, by a name of letters, digits, hyphens and colons. Make
// returns what JSON can hold; it is called when the page needs the document.
type Block struct {
	Name  string
	Label string // shown to the reader who selects among blocks
	Make  func() (any, error)
}

// Page is what a browser shows. The first block is there when the page opens; the others
// are read when they are asked for.
type Page struct {
	Title  string
	Blocks []Block
	Live   *Stream // updates of a served page while it is open; nil: none
}

//go:embed assets
var assets embed.FS

// scripts are concatenated in this order.
var scripts = []string{"util.js", "data.js", "layout.js", "names.js", "draw.js", "graph.js", "panel.js", "compare.js", "program.js", "doctor.js", "training.js", "main.js"}

// index lists the contents of the page.
type index struct {
	Title  string      `json:"title"`
	Served bool        `json:"served"`
	Blocks [][2]string `json:"blocks"` // name and label
}

// WriteTo writes one HTML file that holds all blocks, compressed.
func (p *Page) WriteTo(w io.Writer) (int64, error) {
	blocks := make(map[string][]byte)
	for _, b := range p.Blocks {
		data, err := b.encode()
		if err != nil {
			return 0, err
		}
		blocks[b.Name] = data
	}
	text, err := p.html(false, blocks)
	if err != nil {
		return 0, err
	}
	n, err := w.Write(text)
	return int64(n), err
}

// encode returns the block as JSON.
func (b *Block) encode() ([]byte, error) {
	v, err := b.Make()
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("view: %s: %w", b.Name, err)
	}
	return data, nil
}

// html returns the page with these blocks. Text from models is escaped as HTML in the title. In
// blocks it is base64, or JSON without angle brackets.
func (p *Page) html(served bool, blocks map[string][]byte) ([]byte, error) {
	script, err := source(scripts...)
	if err != nil {
		return nil, err
	}
	style, err := source("style.css")
	if err != nil {
		return nil, err
	}
	body, err := source("body.html")
	if err != nil {
		return nil, err
	}
	ix := index{Title: p.Title, Served: served}
	for _, b := range p.Blocks {
		ix.Blocks = append(ix.Blocks, [2]string{b.Name, b.Label})
	}
	list, err := json.Marshal(ix)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta http-equiv=\"Content-Security-Policy\" content=\"%s\">\n<meta name=\"viewport\" content=\"width=device-width\">\n<title>%s</title>\n<style>%s</style>\n</head>\n", policy(script, style), html.EscapeString(p.Title), style)
	b.WriteString(body)
	fmt.Fprintf(&b, "<script type=\"application/json\" id=\"index\">%s</script>\n", list)
	for _, block := range p.Blocks {
		data, there := blocks[block.Name]
		if !there {
			continue
		}
		fmt.Fprintf(&b, "<script type=\"application/gzip\" id=\"block-%s\">", html.EscapeString(block.Name))
		if err := compressed(&b, data); err != nil {
			return nil, err
		}
		b.WriteString("</script>\n")
	}
	fmt.Fprintf(&b, "<script>%s</script>\n</body>\n</html>\n", script)
	return b.Bytes(), nil
}

// source concatenates assets.
func source(names ...string) (string, error) {
	var b strings.Builder
	for _, n := range names {
		text, err := assets.ReadFile("assets/" + n)
		if err != nil {
			return "", err
		}
		b.Write(text)
	}
	return b.String(), nil
}

// security returns the content security policy of every page.
func security() (string, error) {
	script, err := source(scripts...)
	if err != nil {
		return "", err
	}
	style, err := source("style.css")
	return policy(script, style), err
}

// policy returns the page's content security policy. Only its own script and style run, identified
// by their digests, and it connects only to its own origin.
func policy(script, style string) string {
	digest := func(s string) string {
		sum := sha256.Sum256([]byte(s))
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	return "default-src 'none'; script-src " + digest(script) + "; style-src " + digest(style) + "; connect-src 'self'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
}

// compressed returns data as gzip in base64.
func compressed(w io.Writer, data []byte) error {
	text := base64.NewEncoder(base64.StdEncoding, w)
	z := gzip.NewWriter(text)
	if _, err := z.Write(data); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return text.Close()
}
