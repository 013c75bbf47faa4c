// Package dataset reads the text that the command-line tool trains on: files and folders,
// as characters. Batches are functions of a seed and a position, so that resuming
// needs one number. All other data is read by package data.
package dataset

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"ampc/internal/file"
)

// Text is what was read and from where.
type Text struct {
	Content string
	Source  string // for people: "212 files under src, 4.2 MB"
}

// ReadText reads files, and for a directory every text file below it in order
// of path, leaving out names that begin with a dot. A file counts as text when
// it is UTF-8 without a NUL. It stops after limit bytes at the end of a file;
// limit <= 0 reads everything.
func ReadText(limit int, paths ...string) (Text, error) {
	c := collector{limit: limit}
	for _, root := range paths {
		info, err := os.Stat(root)
		if err != nil {
			return Text{}, file.Error(root, err)
		}
		if info.IsDir() {
			err = c.dir(root, func(string) bool { return true })
		} else {
			err = c.named(root)
		}
		if err != nil {
			return Text{}, err
		}
	}
	return c.text(strings.Join(paths, ", "))
}

// GoSource reads the standard library's Go files of the user's own toolchain,
// up to limit bytes: what people wrote, without tests, tables that programs
// generated, commands and vendored code.
func GoSource(limit int) (Text, error) {
	root := os.Getenv("GOROOT")
	if out, err := exec.Command("go", "env", "GOROOT").Output(); err == nil {
		root = strings.TrimSpace(string(out))
	}
	src := filepath.Join(root, "src")
	if info, err := os.Stat(src); root == "" || err != nil || !info.IsDir() {
		return Text{}, errors.New("no Go toolchain with its source was found to train on: give text with --text FILE-or-DIR")
	}
	c := collector{limit: limit, skip: func(data []byte) bool { return bytes.Contains(data[:min(len(data), 2048)], []byte("Code generated")) }}
	err := c.dir(src, func(path string) bool {
		rel := strings.TrimPrefix(path, src+string(filepath.Separator))
		top, _, _ := strings.Cut(rel, string(filepath.Separator))
		return strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") && !strings.Contains(path, "testdata") &&
			top != "cmd" && !strings.Contains(rel, "vendor")
	})
	if err != nil {
		return Text{}, err
	}
	return c.text(src)
}

type collector struct {
	limit int
	skip  func(data []byte) bool // text that is not wanted; nil: none
	files int
	buf   bytes.Buffer
}

func (c *collector) full() bool { return c.limit > 0 && c.buf.Len() >= c.limit }

func (c *collector) dir(root string, want func(path string) bool) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return file.Error(path, err)
		case c.full():
			return filepath.SkipAll
		case path != root && strings.HasPrefix(d.Name(), "."):
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		case !d.Type().IsRegular() || !want(path):
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return file.Error(path, err)
		}
		if isText(data) && (c.skip == nil || !c.skip(data)) {
			c.add(data)
		}
		return nil
	})
}

// named reads a file that the user asked for by name: here no text is an error.
func (c *collector) named(path string) error {
	data, err := file.Read(path)
	if err != nil {
		return file.Error(path, err)
	}
	if !isText(data) {
		return fmt.Errorf("%s: not UTF-8 text", path)
	}
	c.add(data)
	return nil
}

func (c *collector) add(data []byte) {
	c.buf.Write(data)
	c.files++
}

func (c *collector) text(from string) (Text, error) {
	if c.buf.Len() == 0 {
		return Text{}, fmt.Errorf("%s: no text found", from)
	}
	unit := "files"
	if c.files == 1 {
		unit = "file"
	}
	return Text{c.buf.String(), fmt.Sprintf("%s: %d %s, %.1f MB", from, c.files, unit, float64(c.buf.Len())/1e6)}, nil
}

func isText(data []byte) bool { return utf8.Valid(data) && bytes.IndexByte(data, 0) < 0 }
