package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"ampc/internal/file"
)

// interruptError is why a command was interrupted, as it reports it.
type interruptError string

func (e interruptError) Error() string { return string(e) }

const (
	errInterrupted  interruptError = "interrupted"
	errTerminated   interruptError = "interrupted by SIGTERM"
	errHangup       interruptError = "interrupted: the terminal is gone"
	errOutputClosed interruptError = "interrupted: nothing reads the output any more"
)

// supervised runs the command of this process and returns its exit code. The
// first signal cancels the command's context. A command that then does not end
// within a moment is left behind, unless it holds unsaved work; a second
// Ctrl-C or SIGTERM ends the process in any case. Nothing is torn by that:
// output files are replaced as a whole.
func supervised(args []string) int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	held := &unsaved{}
	go watchSignals(cancel)
	done := make(chan int, 1)
	go func() { done <- run(context.WithValue(ctx, unsavedKey{}, held), args, os.Stdin, os.Stdout, os.Stderr) }()
	select {
	case code := <-done:
		return code
	case <-ctx.Done():
	}
	const grace = 100 * time.Millisecond
	held.Lock() // waits for whoever holds work
	select {
	case code := <-done:
		return code
	case <-time.After(grace):
		file.Discard()
		fmt.Fprintln(os.Stderr, context.Cause(ctx))
		return exitInterrupted
	}
}

// watchSignals cancels at the first signal and ends the process at a second. A
// terminal that goes away may send SIGHUP several times: it counts once. What
// was ignored when the process began (nohup) stays ignored.
func watchSignals(cancel context.CancelCauseFunc) {
	causes := map[os.Signal]error{os.Interrupt: errInterrupted, syscall.SIGTERM: errTerminated, syscall.SIGHUP: errHangup}
	arrived := make(chan os.Signal, 8)
	for s := range causes {
		if !signal.Ignored(s) {
			signal.Notify(arrived, s)
		}
	}
	cancel(causes[<-arrived])
	for s := range arrived {
		if s != syscall.SIGHUP {
			file.Discard()
			os.Exit(exitInterrupted)
		}
	}
}

// unsaved is held by a command that has work to save before the process ends.
type unsaved struct{ sync.RWMutex }

type unsavedKey struct{}

// hold keeps an interrupted process alive until release is called.
func hold(ctx context.Context) (release func()) {
	u, ok := ctx.Value(unsavedKey{}).(*unsaved)
	if !ok {
		return func() {}
	}
	u.RLock()
	return sync.OnceFunc(u.RUnlock)
}

// untilClosed is ctx that also ends when somebody closes what the process
// writes to: the write then fails instead of ending the process.
func untilClosed(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	closed, quit := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(closed, syscall.SIGPIPE)
	go func() {
		select {
		case <-closed:
			cancel(errOutputClosed)
		case <-quit:
		}
	}()
	return ctx, func() {
		if context.Cause(ctx) != errOutputClosed { // else what is still written must not end the process either
			signal.Stop(closed)
		}
		close(quit)
		cancel(nil)
	}
}

// interruption is why a command with context ctx ended with err, nil where it was not interrupted.
func interruption(ctx context.Context, err error) error {
	var why interruptError
	switch {
	case errors.As(err, &why):
		return why
	case ctx.Err() == nil || !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded):
		return nil
	case errors.As(context.Cause(ctx), &why):
		return why
	}
	return errInterrupted
}
