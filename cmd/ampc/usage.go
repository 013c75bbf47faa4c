package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ampc/internal/file"
)

// flagError describes what is wrong with a flag's value: "--steps x: want a whole number".
func flagError(_ *cobra.Command, err error) error {
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) {
		return err
	}
	f, want := bad.GetFlag(), "another value"
	switch f.Value.Type() {
	case "int", "int64":
		want = "a whole number"
	case "float64":
		want = "a number"
	case "bool":
		want = "true or false"
	case "duration":
		want = "a time such as 30s or 5m"
	}
	if errors.Is(err, strconv.ErrRange) {
		want += " nearer to 0"
	}
	return fmt.Errorf("--%s %s: want %s", f.Name, bad.GetValue(), want)
}

// noSuchCommand is the error for an unknown command. It suggests a command with a similar name.
func noSuchCommand(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if args[0] == "" {
		return errors.New("the command is empty")
	}
	err := fmt.Errorf("unknown command %q", args[0])
	for _, near := range root.SuggestionsFor(args[0]) {
		if near[0] == args[0][0] { // in short words, an edit distance of two is large
			return fmt.Errorf("%w; did you mean %s?", err, near)
		}
	}
	return err
}

// oneLine formats a message for one line of a terminal; characters that do not print are escaped.
func oneLine(message string) string {
	if !strings.ContainsFunc(message, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }) {
		return message
	}
	quoted := strconv.Quote(message)
	return strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(quoted[1 : len(quoted)-1])
}

// checked remembers the first write error, because results that were not written are a failure of
// the command.
type checked struct {
	w   io.Writer
	err error
}

func (c *checked) Write(p []byte) (int, error) {
	if c.err != nil {
		return 0, c.err // after an error nothing more is written, so the output has no gaps
	}
	n, err := c.w.Write(p)
	c.err = err
	return n, err
}

// failed returns the write error, nil if everything was written.
func (c *checked) failed() error {
	if c.err == nil {
		return nil
	}
	return file.Error("standard output", c.err)
}

// plural formats a number with its noun: "1 finding", "2 findings".
func plural(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// missing is the error for a MODEL that is not a file. It suggests a model of the zoo with a
// similar name.
func missing(spec string, err error) error {
	name, _, _ := strings.Cut(spec, "?")
	if errors.Is(err, os.ErrNotExist) && inZoo(name) {
		return fmt.Errorf("%w; did you mean zoo:%s?", file.Error(spec, errNoFile), spec)
	}
	return file.Error(spec, err)
}

// errNoFile is the short form of syscall.ENOENT.
var errNoFile = errors.New("no such file")
