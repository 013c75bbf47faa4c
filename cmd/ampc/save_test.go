package main

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"ampc"
	"ampc/internal/safetensors"
	"ampc/models"
)

// trainTiny trains the tiny model on the rhyme in the current folder.
func trainTiny(t *testing.T, code int, args ...string) (stdout, stderr string) {
	t.Helper()
	got, stdout, stderr := ampcRun("", append([]string{"train"}, args...)...)
	if got != code {
		t.Fatalf("train %v: code %d, want %d\n%s%s", args, got, code, stdout, stderr)
	}
	return stdout, stderr
}

// stepsOf is how many steps the checkpoint of a folder has.
func stepsOf(t *testing.T, path ...string) string {
	t.Helper()
	f, err := safetensors.Open(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return f.Meta["user.steps"]
}

// A run without --out takes a folder of its own; one that names a folder with a run in it is refused. --resume alone goes
// on with everything the run was started with, its curves included.
func TestRunsKeepApart(t *testing.T) {
	text := rhyme(t)
	t.Chdir(t.TempDir())
	small := []string{tiny, "--text", text, "--quiet", "--steps", "6", "--policy", "mixed-bf16", "--lr", "0.01", "--seed", "5", "--micro", "2"}
	trainTiny(t, 0, small...)
	first := read(t, "out", checkpointFile)
	if out, _ := trainTiny(t, 0, small...); !strings.Contains(out, filepath.Join("out-2", checkpointFile)) {
		t.Errorf("the second run does not say where it wrote:\n%s", out)
	}
	if !bytes.Equal(first, read(t, "out-2", checkpointFile)) || !bytes.Equal(first, read(t, "out", checkpointFile)) {
		t.Error("two equal runs left different checkpoints")
	}
	_, stderr := trainTiny(t, exitInput, append(small, "--out", "out")...)
	if !strings.Contains(stderr, "out: holds step 6 of "+tiny) || !strings.Contains(stderr, "--resume") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("a folder that holds a run: %q", stderr)
	}
	if !bytes.Equal(first, read(t, "out", checkpointFile)) {
		t.Error("the refused run changed the folder")
	}
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(filepath.Join("out", checkpointFile), later, later); err != nil {
		t.Fatal(err)
	}
	os.Rename("out", "moved")
	os.Symlink("moved", "out")
	out, stderr := trainTiny(t, 0, "--resume", "--steps", "9", "--quiet")
	if !strings.Contains(out, "policy mixed-bf16") || !strings.Contains(out, "resumed after step 6 of "+filepath.Join("out", checkpointFile)) || stderr != "" {
		t.Errorf("resumed: %s%s", out, stderr)
	}
	if got := stepsOf(t, "out", checkpointFile); got != "9" {
		t.Errorf("step %s, want 9", got)
	}
	if got := stepsOf(t, "out", previousFile); got != "6" {
		t.Errorf("the checkpoint before has step %s, want 6", got)
	}
	if n := bytes.Count(read(t, "out", curvesTable), []byte("\n")); n != 10 {
		t.Errorf("%d lines of curves, want a header and 9 steps", n)
	}
	trainTiny(t, 0, append(small, "--out", "out", "--force")...)
	if !bytes.Equal(first, read(t, "out", checkpointFile)) {
		t.Error("--force did not begin anew")
	}
	if _, err := os.Stat(filepath.Join("out", previousFile)); err == nil {
		t.Error("the run that was given up is still there as the checkpoint before")
	}
}

// What --resume cannot take is refused in a line that says what the run has; the rest is taken and said.
func TestResumeIgnoresNothing(t *testing.T) {
	text := rhyme(t)
	t.Chdir(t.TempDir())
	trainTiny(t, 0, tiny, "--text", text, "--quiet", "--steps", "4", "--out", "a", "--scaler", "1024")
	for want, args := range map[string][]string{
		"continues with its own seed, 1":       {"--seed", "2"},
		"was written by " + tiny:               {"zoo:gpt?layers=2"},
		"4 steps are done already":             {"--steps", "4"},
		"no option \"levels\"":                 {tiny + "&levels=2"},
		"--save-every -1s":                     {"--save-every", "-1s"},
		"a-missing: no such file or directory": {"--text", "a-missing"},
		"want [MODEL]":                         {tiny, tiny},
		"--text and --data exclude each other": {"--data", text, "--text", text},
		"b: no such file or directory":         {"--resume=b"},
	} {
		if code, _, errs := ampcRun("", append([]string{"train", "--out", "a", "--resume", "--quiet"}, args...)...); code == 0 || !strings.Contains(errs, want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%v: code %d, %q, want one line with %q", args, code, errs, want)
		}
	}
	out, errs := trainTiny(t, 0, "--resume", "a", "--steps", "6", "--scaler", "dynamic", "--policy", "mixed-f16", "--lr", "0.5", "--quiet", tiny[:len(tiny)-len("&dropout=0.1")])
	for _, want := range []string{"the loss scale starts anew"} {
		if !strings.Contains(errs, want) {
			t.Errorf("not said: %q:\n%s%s", want, out, errs)
		}
	}
	rows := strings.Split(strings.TrimSpace(string(read(t, "a", curvesTable))), "\n")
	if last := strings.Split(rows[len(rows)-1], ","); last[0] != "6" || last[4] != "65536" || len(last[3]) < 3 || last[3][:3] == "0.0" && last[3][3] == '0' {
		t.Errorf("the last step %v, want scale 65536 and a rate near a tenth of 0.5", last)
	}
	if err := os.WriteFile(text, append(read(t, text), read(t, text)...), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, errs := trainTiny(t, exitInput, "--resume=a", "--steps", "7", "--quiet"); !strings.Contains(errs, "has changed since "+filepath.Join("a", checkpointFile)) {
		t.Errorf("changed data: %q", errs)
	}
	if _, errs := trainTiny(t, 0, "--resume=a", "--steps", "7", "--quiet", "--text", text); !strings.Contains(errs, "other data than before") {
		t.Errorf("other data: %q", errs)
	}
}

// A text may be tested on another file; too short a one is an error.
func TestTextHeldOut(t *testing.T) {
	t.Chdir(t.TempDir())
	text := rhyme(t)
	os.WriteFile("same.txt", read(t, text), 0o644)
	os.WriteFile("other.txt", []byte(strings.Repeat("zzz yyy xxx ", 100)), 0o644)
	os.WriteFile("short.txt", []byte("abc"), 0o644)
	loss := map[string]string{}
	for _, held := range []string{"same.txt", "other.txt"} {
		out, _ := trainTiny(t, 0, tiny, "--text", text, "--held-out", held, "--steps", "20", "--quiet")
		_, after, _ := strings.Cut(out, "held out: ")
		loss[held], _, _ = strings.Cut(after, "\n")
	}
	if loss["same.txt"] == loss["other.txt"] || loss["same.txt"] == "" {
		t.Errorf("held-out losses %q of different files", loss)
	}
	if _, errs := trainTiny(t, exitInput, tiny, "--text", text, "--held-out", "short.txt", "--steps", "20"); !strings.Contains(errs, "short.txt: 1 file, 0.0 MB: 3 tokens are too few") {
		t.Errorf("%q", errs)
	}
}

// A folder is one run's: a second is told so, and the lock ends with its process.
func TestTwoTrainersInOneFolder(t *testing.T) {
	text, dir := rhyme(t), t.TempDir()
	p := launch(t, dir, "train", tiny, "--text", text, "--out", "o", "--steps", "1000000", "--quiet", "--save-every", "20ms")
	wait(t, p, filepath.Join(dir, "o", checkpointFile))
	t.Chdir(dir)
	for _, args := range [][]string{{"--out", "o"}, {"--out", "o", "--force"}, {"--resume", "o"}} {
		_, errs := trainTiny(t, exitInput, append(args, "--text", text, "--steps", "3", "--quiet")...)
		if want := fmt.Sprintf("o: another ampc train is running there: locked by another process, %d\n", p.Process.Pid); errs != want {
			t.Errorf("%v: %q, want %q", args, errs, want)
		}
	}
	p.Process.Kill()
	<-p.ended
	d, err := claim("o") // ends a rotation that the kill has torn
	if err != nil {
		t.Fatal(err)
	}
	d.release()
	if out, _ := trainTiny(t, 0, "--resume", "o", "--steps", fmt.Sprint(1+number(stepsOf(t, "o", checkpointFile))), "--quiet"); !strings.Contains(out, "resumed after step") {
		t.Error("a run that was killed cannot be resumed")
	}
}

func number(s string) (n int) {
	fmt.Sscan(s, &n)
	return n
}

// wait waits until a process has written a file.
func wait(t *testing.T, p *process, path string) {
	t.Helper()
	for range 1000 {
		if _, err := os.Stat(path); err == nil {
			return
		}
		if p.over(10 * time.Millisecond) {
			break
		}
	}
	t.Fatalf("no %s\n%s%s", path, p.out.String(), p.errs.String())
}

// A closed output, SIGHUP and SIGTERM save what was learned.
func TestEndingsSave(t *testing.T) {
	text := rhyme(t)
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE} {
		dir := t.TempDir()
		p := launch(t, dir, "train", tiny, "--text", text, "--out", "o", "--steps", "1000000", "--save-every", "100ms")
		wait(t, p, filepath.Join(dir, "o", checkpointFile))
		p.Process.Signal(signal)
		if signal == syscall.SIGHUP {
			p.Process.Signal(signal) // a terminal that goes away may send several
		}
		if !p.over(10 * time.Second) {
			t.Fatalf("%v: still running", signal)
		}
		if code := p.ProcessState.ExitCode(); code != exitInterrupted {
			t.Errorf("%v: code %d\n%s", signal, code, p.errs.String())
		}
		errs := p.errs.String()
		if !strings.Contains(errs, "a second Ctrl-C would lose") || !strings.Contains(errs, "continue with: ampc train --resume=o") {
			t.Errorf("%v: it says\n%s", signal, errs)
		}
		_, after, _ := strings.Cut(errs, "after step ")
		if step, _, _ := strings.Cut(after, ":"); step != stepsOf(t, dir, "o", checkpointFile) {
			t.Errorf("%v: ended after step %s, saved %s", signal, step, stepsOf(t, dir, "o", checkpointFile))
		}
	}
}

// A second Ctrl-C ends a run at whatever it is; what was saved before can be resumed.
func TestSecondInterrupt(t *testing.T) {
	text, dir := rhyme(t), t.TempDir()
	p := launch(t, dir, "train", tiny, "--text", text, "--out", "o", "--steps", "1000000", "--quiet", "--save-every", "50ms")
	wait(t, p, filepath.Join(dir, "o", checkpointFile))
	p.Process.Signal(os.Interrupt)
	p.Process.Signal(os.Interrupt)
	if !p.over(10*time.Second) || p.ProcessState.ExitCode() != exitInterrupted {
		t.Errorf("%v, want code %d\n%s", p.ProcessState, exitInterrupted, p.errs.String())
	}
	o, err := original(filepath.Join(dir, "o"))
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	trainTiny(t, 0, "--resume", "o", "--quiet", "--steps", fmt.Sprint(o.done+2))
}

// The reader of the output may stop: what was learned until then is saved.
func TestClosedOutput(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	c := exec.Command(exe, "train", tiny, "--text", rhyme(t), "--out", "o", "--steps", "20000")
	c.Dir, c.Env, c.Stdout, c.Stderr = dir, append(os.Environ(), asCommand+"=1"), write, write
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	write.Close()
	bufio.NewReaderSize(read, 1).ReadString('\n')
	read.Close()
	c.Wait()
	if code := c.ProcessState.ExitCode(); code != exitInterrupted {
		t.Errorf("%v, want code %d", c.ProcessState, exitInterrupted)
	}
	if n := number(stepsOf(t, dir, "o", checkpointFile)); n < 1 || n >= 20000 {
		t.Errorf("step %d is saved, want the one of the first line that nothing read", n)
	}
}

// Where the disk is full training continues with the checkpoint that is there, gives up the one before for a new one, and
// says so.
func TestFullDisk(t *testing.T) {
	dir, err := claim(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.release()
	s := newSaver(dir, time.Minute)
	put := func(name string) {
		if err := os.WriteFile(filepath.Join(dir.dir, name), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	there := func(name string) bool {
		_, err := os.Stat(filepath.Join(dir.dir, name))
		return err == nil
	}
	put(checkpointFile)
	put(previousFile)
	s.free = func(string) (int64, bool) { return 4 << 20, true }
	if err := s.makeSpace(3 << 20); err != nil || !there(previousFile) {
		t.Errorf("with room: %v", err)
	}
	s.free = func(string) (int64, bool) {
		if there(previousFile) {
			return 1 << 20, true
		}
		return 4 << 20, true
	}
	if err := s.makeSpace(3 << 20); err != nil || there(previousFile) || !there(checkpointFile) {
		t.Errorf("with room once the one before is gone: %v", err)
	}
	if err := s.makeSpace(4 << 20); err == nil || !strings.Contains(err.Error(), "the disk is full: 4.0 MB free, a checkpoint takes 4.1 MB") || !there(checkpointFile) {
		t.Errorf("without room: %v", err)
	}
	s.free = func(string) (int64, bool) { return 0, false }
	if err := s.makeSpace(1 << 40); err != nil {
		t.Errorf("where the room is not known: %v", err)
	}
}

// Weights that are not finite do not take the place of those that were.
func TestBrokenWeightsAreNotSaved(t *testing.T) {
	z, err := models.Open("mlp?in=4&classes=2")
	if err != nil {
		t.Fatal(err)
	}
	defer z.Model.Close()
	if _, err := z.Model.Infer(ampc.InferConfig{}, z.Output); err != nil {
		t.Fatal(err)
	}
	dir, err := claim(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.release()
	s := newSaver(dir, time.Minute)
	for step, x := range []float64{0.5, math.NaN()} {
		name := z.Model.Variables()[0]
		w, err := z.Model.Variable(name)
		if err != nil {
			t.Fatal(err)
		}
		fill := make([]float64, w.Len())
		fill[len(fill)/2] = x
		if err := z.Model.SetVariable(name, fill); err != nil {
			t.Fatal(err)
		}
		snap, err := z.Model.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		s.start(snap, step+1, curveFiles{})
		err = s.wait()
		if want := fmt.Sprintf("step 2: not saved: %s is not finite any more; the checkpoint of step 1 is kept", name); step == 0 && err != nil || step == 1 && (err == nil || err.Error() != want) {
			t.Errorf("step %d: %v, want %q at the second", step+1, err, want)
		}
	}
	if _, err := os.Stat(filepath.Join(dir.dir, previousFile)); err == nil {
		t.Error("the good checkpoint was moved")
	}
}

// A process that dies between the two renames of a rotation leaves files that the next run puts in order.
func TestTornRotation(t *testing.T) {
	for name, c := range map[string]struct{ before, after map[string]string }{
		"before the first":           {map[string]string{checkpointFile: "1", nextFile: "2"}, map[string]string{checkpointFile: "2", previousFile: "1"}},
		"between":                    {map[string]string{previousFile: "1", nextFile: "2"}, map[string]string{checkpointFile: "2", previousFile: "1"}},
		"in the first save":          {map[string]string{nextFile: "1"}, map[string]string{checkpointFile: "1"}},
		"with three of them":         {map[string]string{previousFile: "1", checkpointFile: "2", nextFile: "3"}, map[string]string{checkpointFile: "3", previousFile: "2"}},
		"in the first save's curves": {map[string]string{curvesLines: "x"}, map[string]string{curvesLines: "x"}},
		"a file half written":        {map[string]string{checkpointFile: "2", "." + nextFile + ".tmp77": "x"}, map[string]string{checkpointFile: "2"}},
	} {
		dir := t.TempDir()
		for file, text := range c.before {
			os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644)
		}
		f, err := claim(dir)
		if err != nil {
			t.Fatal(err)
		}
		f.release()
		c.after[lockFile] = fmt.Sprintln(os.Getpid())
		left, _ := os.ReadDir(dir)
		for _, e := range left {
			if got := string(read(t, dir, e.Name())); got != c.after[e.Name()] {
				t.Errorf("%s: %s holds %q, want %q", name, e.Name(), got, c.after[e.Name()])
			}
		}
		if len(left) != len(c.after) {
			t.Errorf("%s: left %v", name, left)
		}
		if _, saved := c.after[checkpointFile]; hasRun(dir) != saved {
			t.Errorf("%s: holds work: %t", name, !saved)
		}
	}
}

// A damaged checkpoint is not the end: the one before is.
func TestResumeFromTheOneBefore(t *testing.T) {
	text := rhyme(t)
	t.Chdir(t.TempDir())
	trainTiny(t, 0, tiny, "--text", text, "--quiet", "--steps", "4", "--out", "a")
	trainTiny(t, 0, "--resume", "a", "--quiet", "--steps", "8")
	data := read(t, "a", checkpointFile)
	data[len(data)-1] ^= 1
	os.WriteFile(filepath.Join("a", checkpointFile), data, 0o644)
	out, errs := trainTiny(t, 0, "--resume", "a", "--quiet", "--steps", "8")
	if !strings.Contains(out, "resumed after step 4 of "+filepath.Join("a", previousFile)) || !strings.Contains(errs, checkpointFile) {
		t.Errorf("%s%s", out, errs)
	}
}

var (
	kills     = flag.Int("kills", 4, "processes that TestKill kills")
	killSteps = flag.Int("kill-steps", 100, "steps of the run for each of them; on a fast machine 400 outlast all kills")
)

// A run that is killed at random moments can be resumed every time, and comes to the same bits as one that was left alone.
func TestKill(t *testing.T) {
	text, dir := rhyme(t), t.TempDir()
	const every = 100 * time.Millisecond
	args := []string{"train", "zoo:gpt?layers=2&heads=2&dim=32&batch=8&seq=32&dropout=0.1", "--text", text, "--steps", fmt.Sprint(*kills * *killSteps), "--quiet"}
	saved, killed, worst := 0, 0, time.Duration(0)
	r := rand.New(rand.NewPCG(1, uint64(*kills)))
	for range *kills {
		more := []string{"--out", "o", "--save-every", every.String()}
		if saved > 0 {
			more = append(more, "--resume")
		}
		p := launch(t, dir, append(args, more...)...)
		p.over(time.Duration(r.IntN(800)) * time.Millisecond)
		now := time.Now()
		p.Process.Kill()
		<-p.ended
		if p.ProcessState.Exited() {
			t.Logf("ended before it was killed: %v\n%s", p.ProcessState, p.errs.String())
			break
		}
		killed++
		o, err := original(filepath.Join(dir, "o"))
		if err != nil {
			if saved > 0 {
				t.Fatalf("kill %d: step %d was saved, now %v", killed, saved, err)
			}
			continue // too early
		}
		info, err := os.Stat(o.path)
		if err != nil {
			t.Fatal(err)
		}
		step := o.done
		if step < saved {
			t.Errorf("kill %d: step %d is saved, %d was before", killed, step, saved)
		}
		if step > saved {
			worst = max(worst, now.Sub(info.ModTime()))
		}
		saved = step
	}
	t.Logf("%d kills, step %d saved, at most %v without a save where every %v was asked for", killed, saved, worst.Round(time.Millisecond), every)
	t.Chdir(dir)
	rest := []string{"--out", "o"}
	if saved > 0 {
		rest = append(rest, "--resume")
	}
	if o, err := original("o"); err != nil || o.done < *kills**killSteps { // else the last process came to the end before it was killed
		trainTiny(t, 0, append(args[1:], rest...)...)
	}
	trainTiny(t, 0, append(args[1:], "--out", "whole", "--save-every", "0")...)
	for _, name := range []string{checkpointFile, curvesLines, curvesTable, curvesFile, graphFile} {
		if !bytes.Equal(timeless(read(t, "o", name)), timeless(read(t, "whole", name))) {
			t.Errorf("%s differs from that of a run that was left alone", name)
		}
	}
	if left, _ := filepath.Glob("o/.*.tmp*"); len(left) > 0 {
		t.Errorf("temporary files are left: %v", left)
	}
}

// timeless is a log without what depends on the clock and on where runs were stopped: the pace, and the memory
// that the first line of each start has.
func timeless(log []byte) []byte {
	log = regexp.MustCompile(`,"[a-z]+/s":[^,}]+|,"memory":[^,}]+`).ReplaceAll(log, nil)
	return regexp.MustCompile(`(?m)^(\d.*),[^,\n]*,[^,\n]*$`).ReplaceAll(log, []byte("$1"))
}

// What a save costs: the time that training stands still for a snapshot and the curves of a thousand steps, and in
// write-ms the time that the file then takes beside it.
func BenchmarkCheckpoint(b *testing.B) {
	text := filepath.Join(b.TempDir(), "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("so long as men can breathe or eyes can see ", 400)), 0o644); err != nil {
		b.Fatal(err)
	}
	f := &trainFlags{text: []string{text}, policy: "mixed-f16", steps: 1000, micro: 1, seed: 1}
	t, err := newTrainer(trainCommand(), "zoo:gpt", f, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer t.model.Close()
	dir, err := claim(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer dir.release()
	t.saveTo(dir)
	written := time.Duration(0)
	for b.Loop() {
		for range 1000 {
			t.done++
			t.curves.add(at(t.done, 2, 1e-3, 65536, false, math.NaN()))
		}
		if err := t.checkpoint(); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		start := time.Now()
		if err := t.saver.wait(); err != nil {
			b.Fatal(err)
		}
		written += time.Since(start)
		b.StartTimer()
	}
	b.ReportMetric(float64(written.Milliseconds())/float64(b.N), "write-ms")
}
