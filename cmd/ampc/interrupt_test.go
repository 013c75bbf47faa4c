package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// asCommand makes the test binary be the command itself.
const asCommand = "AMPC_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		os.Exit(runSupervised(os.Args[1:]))
	}
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGHUP} {
		if signal.Ignored(s) { // as under nohup: processes that are started would inherit it
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	os.Exit(m.Run())
}

// process is a command line in a process of its own.
type process struct {
	*exec.Cmd
	out, errs bytes.Buffer
	ended     chan struct{} // closed once it is over
}

// launch starts a command line in dir.
func launch(t *testing.T, dir string, args ...string) *process {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("Windows sends no signals to processes")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Cmd: exec.Command(exe, args...), ended: make(chan struct{})}
	p.Dir, p.Env = dir, append(os.Environ(), asCommand+"=1")
	p.Stdout, p.Stderr = &p.out, &p.errs
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.Process.Kill()
		<-p.ended
	})
	return p
}

// over waits for the end, at most that long.
func (p *process) over(limit time.Duration) bool {
	select {
	case <-p.ended:
		return true
	case <-time.After(limit):
		return false
	}
}

// used is the processor time of p so far; an hour where the system has no file that says it.
func (p *process) used() time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Process.Pid))
	if err != nil {
		return time.Hour
	}
	var user, system int64 // in hundredths of a second: fields 14 and 15, the twelfth behind the name in brackets
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	fmt.Sscan(fields[11], &user)
	fmt.Sscan(fields[12], &system)
	return time.Duration(user+system) * 10 * time.Millisecond
}

// Every command that computes ends at once when it is interrupted, whatever it is at. The models are large enough to keep
// each busy for a minute or more.
func TestEveryCommandIsInterrupted(t *testing.T) {
	large := "zoo:gpt?layers=24&dim=1024&heads=16&batch=16&seq=512"
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "t.txt"), []byte(strings.Repeat("so long as men can breathe or eyes can see ", 400)), 0o644); err != nil {
		t.Fatal(err)
	}
	product, err := filepath.Abs("../../onnx/testdata/product.onnx")
	if err != nil {
		t.Fatal(err)
	}
	commands := map[string][]string{
		"convert":  {product, "half.onnx", "--dim", "N=16384"},
		"export":   {large, "out.onnx"},
		"ranges":   {large, "--record", "3"},
		"dump":     {large, "--record", "3"},
		"view":     {large, "--record", "3"},
		"why":      {large, "--record", "3"},
		"why-not":  {large},
		"plan":     {large, "--record", "3"},
		"prove":    {large, "--record", "3"},
		"doctor":   {large},
		"run":      {large, "--steps", "1000"},
		"generate": {large, "--prompt", "x", "--max-tokens", "0"},
		"bench":    {large, "--steps", "1000"},
		"compare":  {"--steps", "100000"},
		"advise":   {"zoo:gpt?layers=12&dim=512&heads=8&batch=16&seq=256", "--text", "t.txt", "--steps", "100000"},
		"train":    {"zoo:gpt?layers=2&dim=64&heads=2&batch=4&seq=32", "--text", "t.txt", "--steps", "1000000", "--quiet"},
	}
	quick := map[string]bool{"ops": true, "passes": true, "policy": true, "devices": true, "algorithms": true, "version": true}
	for _, c := range newRoot().Commands() {
		name := c.Name()
		if quick[name] {
			continue // prints a table
		}
		args, ok := commands[name]
		if !ok {
			t.Errorf("%s: no command line here that runs long, nor a word that it never does", name)
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := launch(t, dir, append([]string{name}, args...)...)
			for ok := true; ok; ok = p.used() < 300*time.Millisecond {
				if p.over(200 * time.Millisecond) {
					t.Fatalf("ended by itself:\n%s%s", p.out.String(), p.errs.String())
				}
			}
			start := time.Now()
			p.Process.Signal(os.Interrupt)
			// 200 ms on a machine at rest; others may be at work on this one.
			if !p.over(5 * time.Second) {
				t.Fatal("still running")
			}
			t.Logf("ended after %v", time.Since(start).Round(time.Millisecond))
			if code := p.ProcessState.ExitCode(); code != exitInterrupted {
				t.Errorf("code %d, want %d\n%s", code, exitInterrupted, p.errs.String())
			}
			if !strings.Contains(p.errs.String(), "interrupted") || strings.Contains(p.errs.String(), "context canceled") {
				t.Errorf("it says %q", p.errs.String())
			}
			beside := map[string]string{"convert": ".half.onnx*", "export": ".out.onnx*"}[name]
			if left, _ := filepath.Glob(filepath.Join(dir, beside)); beside != "" && len(left) > 0 {
				t.Errorf("%v is left", left)
			}
		})
	}
}

// Each signal that ends a command gives the same code, and says which it was.
func TestSignals(t *testing.T) {
	for sig, want := range map[syscall.Signal]error{syscall.SIGTERM: errTerminated, syscall.SIGHUP: errHangup} {
		p := launch(t, t.TempDir(), "ranges", "zoo:gpt?layers=24&dim=1024&heads=16&batch=16&seq=512", "--record", "3")
		for ok := true; ok; ok = p.used() < 300*time.Millisecond { // it is at work, also on a busy machine
			if p.over(200 * time.Millisecond) {
				t.Fatalf("ended by itself: %s", p.errs.String())
			}
		}
		p.Process.Signal(sig)
		if !p.over(5*time.Second) || p.ProcessState.ExitCode() != exitInterrupted || strings.TrimSpace(p.errs.String()) != want.Error() {
			t.Errorf("%v: %v, %q", sig, p.ProcessState, p.errs.String())
		}
	}
	if !errors.Is(failure{stuckError{errInterrupted}}, errInterrupted) {
		t.Error("a failure hides what it is")
	}
}

// Commands stop by themselves where they can, so that a program that holds one need not leave it behind.
func TestContextReachesTheWork(t *testing.T) {
	for name, args := range map[string][]string{
		"ranges": {"zoo:mlp", "--record", "100000"},
		"run":    {"zoo:mlp", "--steps", "1000000"},
		"bench":  {"zoo:mlp", "--steps", "1000000"},
	} {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 300*time.Millisecond, errTerminated)
		var out, errs bytes.Buffer
		code := run(ctx, append([]string{name}, args...), strings.NewReader(""), &out, &errs)
		cancel()
		if code != exitInterrupted || strings.TrimSpace(errs.String()) != errTerminated.Error() {
			t.Errorf("%s: code %d, %q", name, code, errs.String())
		}
	}
}
