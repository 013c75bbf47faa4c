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

// flagError words what is wrong with a flag's value: "--steps x: want a whole number".
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

// noSuchCommand is the error of a first word that is not a command, with the one that may have been meant.
func noSuchCommand(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if args[0] == "" {
		return errors.New("the command is empty")
	}
	err := fmt.Errorf("unknown command %q", args[0])
	for _, near := range root.SuggestionsFor(args[0]) {
		if near[0] == args[0][0] { // of short words, two letters are a long way
			return fmt.Errorf("%w; did you mean %s?", err, near)
		}
	}
	return err
}

// oneLine is a message as one line of a terminal: what does not print is escaped.
func oneLine(message string) string {
	if !strings.ContainsFunc(message, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }) {
		return message
	}
	quoted := strconv.Quote(message)
	return strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(quoted[1 : len(quoted)-1])
}

// checked remembers the first error of writing: results that did not arrive are a failure of the command.
type checked struct {
	w   io.Writer
	err error
}

func (c *checked) Write(p []byte) (int, error) {
	if c.err != nil {
		return 0, c.err // no results with a hole in them
	}
	n, err := c.w.Write(p)
	c.err = err
	return n, err
}

// failed is the error of what was written, nil where all arrived.
func (c *checked) failed() error {
	if c.err == nil {
		return nil
	}
	return file.Error("standard output", c.err)
}

// plural is a number with what it counts: "1 finding", "2 findings".
func plural(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// missing is the error of a MODEL that is not a file, with the model of the zoo that may have been meant.
func missing(spec string, err error) error {
	name, _, _ := strings.Cut(spec, "?")
	if errors.Is(err, os.ErrNotExist) && inZoo(name) {
		return fmt.Errorf("%w; did you mean zoo:%s?", file.Error(spec, errNoFile), spec)
	}
	return file.Error(spec, err)
}

// errNoFile says shortly what syscall.ENOENT says.
var errNoFile = errors.New("no such file")
