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

// interruptError is the reason for an interruption, as the command reports it.
type interruptError string

func (e interruptError) Error() string { return string(e) }

const (
	errInterrupted  interruptError = "interrupted"
	errTerminated   interruptError = "interrupted by SIGTERM"
	errHangup       interruptError = "interrupted: the terminal is gone"
	errOutputClosed interruptError = "interrupted: nothing reads the output any more"
)

// runSupervised runs the command of this process and returns its exit code. The first signal
// cancels the command's context. A command that does not return shortly after that is abandoned,
// unless it holds unsaved work. A second Ctrl-C or SIGTERM ends the process in any case. No output
// file is left incomplete, because files are replaced as a whole.
func runSupervised(args []string) int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	held := &exitGuard{}
	go watchSignals(cancel)
	done := make(chan int, 1)
	go func() {
		done <- run(context.WithValue(ctx, exitGuardKey{}, held), args, os.Stdin, os.Stdout, os.Stderr)
	}()
	select {
	case code := <-done:
		return code
	case <-ctx.Done():
	}
	const grace = 100 * time.Millisecond
	held.Lock() // waits until no unsaved work is held
	select {
	case code := <-done:
		return code
	case <-time.After(grace):
		file.Discard()
		fmt.Fprintln(os.Stderr, context.Cause(ctx))
		return exitInterrupted
	}
}

// watchSignals cancels the context at the first signal and ends the process at the second. SIGHUP
// counts once, because a closing terminal may send it several times. A signal that was ignored when
// the process began (nohup) stays ignored.
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

// exitGuard is read-locked while a command has work to save before the process ends.
type exitGuard struct{ sync.RWMutex }

type exitGuardKey struct{}

// delayExit keeps an interrupted process alive until release is called.
func delayExit(ctx context.Context) (release func()) {
	u, ok := ctx.Value(exitGuardKey{}).(*exitGuard)
	if !ok {
		return func() {}
	}
	u.RLock()
	return sync.OnceFunc(u.RUnlock)
}

// untilClosed returns a context that also ends when the reader of the process's output closes it.
// The write then fails instead of ending the process.
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
		if context.Cause(ctx) != errOutputClosed { // otherwise the remaining writes would end the process
			signal.Stop(closed)
		}
		close(quit)
		cancel(nil)
	}
}

// interruption returns the reason why a command with context ctx ended with err, or nil if it was
// not interrupted.
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
