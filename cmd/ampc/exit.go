package main

import (
	"fmt"
	"strings"
)

// Exit codes.
const (
	exitOK          = 0
	exitInput       = 1
	exitUsage       = 2
	exitStuck       = 3
	exitInterrupted = 130 // the code that shells use for a process that Ctrl-C ended
)

// exitCodes describes each code.
var exitCodes = []struct {
	code  int
	means string
}{
	{exitOK, "success"},
	{exitInput, "error in a model, a file or data, or the machine lacks something"},
	{exitUsage, "wrong command line"},
	{exitStuck, "training stopped by itself: no step makes progress any more"},
	{exitInterrupted, "interrupted by Ctrl-C, SIGTERM or SIGHUP, or train's output was closed; train saves first"},
}

// exitHelp is the part of the help about exit codes.
func exitHelp() string {
	var b strings.Builder
	b.WriteString("Exit codes (an error is one line):\n")
	for _, e := range exitCodes {
		fmt.Fprintf(&b, "  %3d  %s\n", e.code, e.means)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// failure marks an error during execution, as opposed to wrong usage.
type failure struct{ error }

func (f failure) Unwrap() error { return f.error }

// stuckError ends a training run that makes no progress.
type stuckError struct{ error }

func (e stuckError) Unwrap() error { return e.error }

// usageError is an error in the command line that cobra cannot detect.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }
