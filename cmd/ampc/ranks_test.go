package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	goruntime "runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"ampc/internal/safetensors"
)

// launchers start a command line on so many ranks; those that are not installed are skipped.
var launchers = []struct {
	name, rank string // the environment variable of a rank's number
	start      []string
}{
	{"openmpi", "OMPI_COMM_WORLD_RANK", []string{"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n"}},
	{"mpich", "PMI_RANK", []string{"mpiexec.mpich", "-n"}},
}

// grouped is a run on several ranks.
type grouped struct {
	*exec.Cmd
	out  bytes.Buffer
	mark string
}

// onRanks starts a command line on n ranks.
func onRanks(t *testing.T, start []string, n int, dir string, args ...string) *grouped {
	t.Helper()
	if _, err := exec.LookPath(start[0]); err != nil {
		t.Skipf("%s is not installed", start[0])
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	g := &grouped{mark: fmt.Sprintf("AMPC_TEST_MARK=%s.%d", dir, time.Now().UnixNano())}
	g.Cmd = exec.Command(start[0], append(append(append([]string{}, start[1:]...), fmt.Sprint(n), exe), args...)...)
	g.Dir, g.Env = dir, append(os.Environ(), asCommand+"=1", "GOMAXPROCS=1", g.mark)
	g.Stdout, g.Stderr, g.WaitDelay = &g.out, &g.out, time.Second
	if err := g.Start(); err != nil {
		t.Fatal(err)
	}
	return g
}

// end waits for the end of a run, at most that long.
func (g *grouped) end(t *testing.T, limit time.Duration) (string, error) {
	t.Helper()
	stop := time.AfterFunc(limit, func() { g.Process.Kill() })
	err := g.Wait()
	if !stop.Stop() {
		t.Fatalf("the run has not ended within %v\n%s", limit, g.out.String())
	}
	return g.out.String(), err
}

// kill kills the process of a rank, and reports whether there was one.
func (g *grouped) kill(variable string, rank int) bool {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, f := range files {
		env, err := os.ReadFile(f)
		if err == nil && bytes.Contains(env, []byte(g.mark)) && bytes.Contains(env, fmt.Appendf(nil, "\x00%s=%d\x00", variable, rank)) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
			if exe, _ := os.Readlink(filepath.Join(filepath.Dir(f), "exe")); strings.HasSuffix(exe, ".test") {
				p, err := os.FindProcess(pid)
				return err == nil && p.Kill() == nil
			}
		}
	}
	return false
}

var heldOutLoss = regexp.MustCompile(`held out: loss ([0-9.]+)`)

func heldOut(t *testing.T, out string) float64 {
	t.Helper()
	m := heldOutLoss.FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("no held-out loss in\n%s", out)
	}
	x, _ := strconv.ParseFloat(m[1], 64)
	return x
}

const shared = "zoo:gpt?layers=1&heads=2&dim=16&batch=12&seq=16&dropout=0.1"

// TestTrainOnRanks trains on 1, 2 and 4 ranks, kills a rank of 3 and resumes on 2: all learn what one process learns.
func TestTrainOnRanks(t *testing.T) {
	text := rhyme(t)
	const steps = 60
	arguments := func(out string) []string {
		return []string{"train", shared, "--text", text, "--out", out, "--quiet", "--steps", fmt.Sprint(steps)}
	}
	code, alone, errs := ampcRun("", arguments(filepath.Join(t.TempDir(), "o"))...)
	if code != 0 {
		t.Fatal(errs)
	}
	want := heldOut(t, alone)
	same := func(t *testing.T, out string) {
		t.Helper()
		if got := heldOut(t, out); math.Abs(got-want) > 2e-3*want {
			t.Errorf("held-out loss %g, one process has %g\n%s", got, want, out)
		}
	}
	for _, l := range launchers {
		t.Run(l.name, func(t *testing.T) {
			counts := []int{2, 4}
			if testing.Short() {
				counts = counts[:1]
			}
			for _, n := range counts {
				out, err := onRanks(t, l.start, n, t.TempDir(), arguments("o")...).end(t, time.Minute)
				if err != nil || !strings.HasPrefix(out, fmt.Sprintf("%d ranks on MPI", n)) {
					t.Fatalf("%v\n%s", err, out)
				}
				same(t, out)
			}
			if testing.Short() {
				return
			}
			dir := t.TempDir()
			g := onRanks(t, l.start, 3, dir, "train", shared, "--text", text, "--out", "o", "--quiet", "--steps", "1000000", "--save-every", "100ms")
			kept := filepath.Join(dir, "o", checkpointFile)
			for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
				if _, err := os.Stat(kept); err == nil {
					break
				}
				if time.Now().After(deadline) {
					g.Process.Kill()
					t.Fatalf("no checkpoint\n%s", g.out.String())
				}
			}
			if !g.kill(l.rank, 1) {
				g.Process.Kill()
				t.Fatal("rank 1 is not there")
			}
			if out, err := g.end(t, 30*time.Second); err == nil {
				t.Errorf("a run that lost a rank ends well\n%s", out)
			}
			o, err := original(filepath.Join(dir, "o"))
			if err != nil {
				t.Fatal(err)
			}
			more, copied := fmt.Sprint(o.done+20), filepath.Join(dir, "p")
			if err := os.CopyFS(copied, os.DirFS(filepath.Join(dir, "o"))); err != nil {
				t.Fatal(err)
			}
			out, err := onRanks(t, l.start, 2, dir, "train", "--resume=o", "--quiet", "--steps", more).end(t, time.Minute)
			if err != nil || !strings.Contains(out, fmt.Sprintf("resumed after step %d ", o.done)) {
				t.Fatalf("%v\n%s", err, out)
			}
			_, alone, errs := ampcRun("", "train", "--resume="+copied, "--quiet", "--steps", more)
			if got, want := heldOut(t, out), heldOut(t, alone+errs); math.Abs(got-want) > 2e-3*want {
				t.Errorf("resumed on 2 ranks: held-out loss %g, in one process %g", got, want)
			}
		})
	}
}

// TestSlicesOnRanks: with --slices, 1, 2 and 4 ranks save the same weights and training state,
// and so do 2 ranks that resume what 4 have begun.
func TestSlicesOnRanks(t *testing.T) {
	text, dir := rhyme(t), t.TempDir()
	arguments := func(out string, steps int) []string {
		return []string{"train", strings.Replace(shared, "batch=12", "batch=16", 1), "--text", text, "--out", filepath.Join(dir, out), "--quiet", "--slices", "8", "--steps", fmt.Sprint(steps)}
	}
	if code, _, errs := ampcRun("", arguments("one", 30)...); code != 0 {
		t.Fatal(errs)
	}
	if code, _, errs := ampcRun("", arguments("begun", 10)...); code != 0 {
		t.Fatal(errs)
	}
	goOn := func(out string) []string {
		return []string{"train", "--resume=" + filepath.Join(dir, out), "--quiet", "--steps", "30"} // the end of the schedule moves, too
	}
	if code, _, errs := ampcRun("", goOn("begun")...); code != 0 {
		t.Fatal(errs)
	}
	same := func(t *testing.T, out, as string) {
		t.Helper()
		got := tensorsOf(t, filepath.Join(dir, out, checkpointFile))
		for name, v := range tensorsOf(t, filepath.Join(dir, as, checkpointFile)) {
			if got[name] != v {
				t.Errorf("%s: %s is not that of one process", out, name)
			}
		}
	}
	for _, l := range launchers {
		t.Run(l.name, func(t *testing.T) {
			counts := []int{4, 2}
			if testing.Short() {
				counts = counts[1:]
			}
			for _, n := range counts {
				out := fmt.Sprint(l.name, n)
				if said, err := onRanks(t, l.start, n, dir, arguments(out, 30)...).end(t, time.Minute); err != nil {
					t.Fatalf("%v\n%s", err, said)
				}
				same(t, out, "one")
			}
			out := l.name + "resumed"
			if said, err := onRanks(t, l.start, 4, dir, arguments(out, 10)...).end(t, time.Minute); err != nil {
				t.Fatalf("%v\n%s", err, said)
			}
			if said, err := onRanks(t, l.start, 2, dir, goOn(out)...).end(t, time.Minute); err != nil {
				t.Fatalf("%v\n%s", err, said)
			}
			same(t, out, "begun")
		})
	}
}

// TestTrainSharded: ranks of which each keeps a part of the state learn what one process
// learns, save while they train and at the end, and resume on other ranks and in one process.
func TestTrainSharded(t *testing.T) {
	text, dir := rhyme(t), t.TempDir()
	arguments := func(out string, more ...string) []string {
		return append([]string{"train", shared, "--text", text, "--out", filepath.Join(dir, out), "--quiet", "--steps", "40"}, more...)
	}
	code, alone, errs := ampcRun("", arguments("one")...)
	if code != 0 {
		t.Fatal(errs)
	}
	near := func(t *testing.T, out, want string) {
		t.Helper()
		if x, y := heldOut(t, out), heldOut(t, want); math.Abs(x-y) > 2e-3*y {
			t.Errorf("held-out loss %g, one process has %g\n%s", x, y, out)
		}
	}
	for _, l := range launchers {
		t.Run(l.name, func(t *testing.T) {
			out, err := onRanks(t, l.start, 2, dir, arguments(l.name, "--shard", "--save-every", "20ms")...).end(t, time.Minute)
			if err != nil || !strings.Contains(out, " 3952 parameters") {
				t.Fatalf("%v\n%s", err, out)
			}
			near(t, out, alone)
			if testing.Short() {
				return
			}
			code, copied, errs := ampcRun("", "train", "--resume="+filepath.Join(dir, l.name), "--out", filepath.Join(dir, l.name+"-alone"), "--quiet", "--steps", "60")
			if code != 0 {
				t.Fatal(errs)
			}
			out, err = onRanks(t, l.start, 4, dir, "train", "--resume="+filepath.Join(dir, l.name), "--quiet", "--steps", "60").end(t, time.Minute)
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			near(t, out, copied)
		})
	}
}

// TestTrainSends16Bits: ranks that send gradients in 16 bits learn what one process learns, but not
// with the bits of f32 messages. A run that is resumed keeps the dtype.
func TestTrainSends16Bits(t *testing.T) {
	text, dir := rhyme(t), t.TempDir()
	arguments := func(out string, more ...string) []string {
		return append([]string{"train", shared, "--text", text, "--out", filepath.Join(dir, out), "--quiet", "--steps", "40"}, more...)
	}
	code, alone, errs := ampcRun("", arguments("one")...)
	if code != 0 {
		t.Fatal(errs)
	}
	run := func(t *testing.T, start []string, args ...string) string {
		t.Helper()
		out, err := onRanks(t, start, 2, dir, args...).end(t, time.Minute)
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return out
	}
	equal := func(t *testing.T, x, y string) bool {
		t.Helper()
		return maps.Equal(tensorsOf(t, filepath.Join(dir, x, checkpointFile)), tensorsOf(t, filepath.Join(dir, y, checkpointFile)))
	}
	for _, l := range launchers {
		t.Run(l.name, func(t *testing.T) {
			run(t, l.start, arguments(l.name+"-f32")...)
			for _, message := range []string{"f16", "bf16"} {
				name := l.name + "-" + message
				out := run(t, l.start, arguments(name, "--message", message)...)
				if x, y := heldOut(t, out), heldOut(t, alone); math.Abs(x-y) > 1e-2*y {
					t.Errorf("messages in %s: held-out loss %g, one process has %g\n%s", message, x, y, out)
				}
				if equal(t, name, l.name+"-f32") {
					t.Errorf("messages in %s: the checkpoint of messages in f32", message)
				}
			}
			if testing.Short() {
				return
			}
			goOn := func(out string, more ...string) {
				run(t, l.start, append([]string{"train", "--resume=" + filepath.Join(dir, l.name+"-f16"), "--out", filepath.Join(dir, out), "--quiet", "--steps", "60"}, more...)...)
			}
			goOn(l.name + "-kept")
			goOn(l.name+"-given", "--message", "f16")
			goOn(l.name+"-changed", "--message", "f32")
			if !equal(t, l.name+"-kept", l.name+"-given") || equal(t, l.name+"-kept", l.name+"-changed") {
				t.Error("a resumed run does not keep --message f16")
			}
		})
	}
	if code, _, errs := ampcRun("", arguments("no", "--message", "f64")...); code != exitUsage || !strings.Contains(errs, "there are f32, f16 and bf16") {
		t.Errorf("--message f64: %d %s", code, errs)
	}
}

// A sharded step sends three quarters of the bytes of f32 where weights are read in 16 bits.
func TestPlanShards(t *testing.T) {
	sent := func(more ...string) float64 {
		code, out, errs := ampcRun("", append([]string{"plan", "zoo:mlp", "--ranks", "2", "--json"}, more...)...)
		var rows []rankRow
		if err := json.Unmarshal([]byte(out), &rows); code != 0 || err != nil || len(rows) != 1 {
			t.Fatalf("%d %v\n%s%s", code, err, out, errs)
		}
		return float64(rows[0].Sent)
	}
	whole := sent("--policy", "f32")
	for policy, most := range map[string]float64{"f32": 1.001, "mixed-f16": 0.76, "mixed-bf16": 0.76} {
		if share := sent("--policy", policy, "--shard") / whole; share > most {
			t.Errorf("%s: %.3f of the bytes of f32, want at most %g", policy, share, most)
		}
	}
}

// tensorsOf reads the tensors of a checkpoint.
func tensorsOf(t *testing.T, path string) map[string]string {
	t.Helper()
	f, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all := map[string]string{}
	for _, x := range f.Tensors {
		data := make([]byte, x.Bytes())
		if err := f.Read(x.Name, data); err != nil {
			t.Fatal(err)
		}
		all[x.Name] = string(data)
	}
	return all
}

// Ranks whose training goes nowhere end with what the doctor says of the step of all, once, and save
// it.
func TestRanksAreStuck(t *testing.T) {
	text := rhyme(t)
	for _, l := range launchers {
		t.Run(l.name, func(t *testing.T) {
			dir := t.TempDir()
			out, err := onRanks(t, l.start, 2, dir, "train", shared, "--text", text, "--out", "o", "--quiet", "--steps", "40", "--lr", "1e30", "--save-bad", "bad.ampc").end(t, 2*time.Minute)
			if err == nil || strings.Count(out, "forward overflow: ") != 1 {
				t.Fatalf("%v\n%s", err, out)
			}
			if code, said, errs := ampcRun("", "doctor", filepath.Join(dir, "bad.ampc")); code != 0 || !strings.Contains(said, "forward overflow: ") {
				t.Errorf("the doctor says of the file: code %d\n%s%s", code, said, errs)
			}
		})
	}
}

// A batch that the ranks cannot share is one line on the rank that leads, and ends all.
func TestBatchIsNotDivisible(t *testing.T) {
	out, err := onRanks(t, launchers[0].start, 2, t.TempDir(), "train", "zoo:gpt?batch=3", "--text", rhyme(t), "--steps", "2").end(t, time.Minute)
	if err == nil || !strings.Contains(out, "a batch of 3 is not divisible among 2 ranks: give batch=4") {
		t.Errorf("%v\n%s", err, out)
	}
}

// plan --ranks lists what the messages of a step cost; the other commands show that step.
func TestPlanRanks(t *testing.T) {
	code, out, errs := ampcRun("", "plan", "zoo:mlp", "--ranks", "4", "--link", "8Gb", "--latency", "0s", "--step-time", "10ms")
	// 203530 parameters of 4 bytes, 2 scalars and 2 flags: 2 and 3/2 times that over 1 GB/s
	for _, want := range []string{"2  ", "795.0 kB", "4  ", "1.2 MB", "messages travel beside the steps"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("%d, no %q in\n%s%s", code, want, out, errs)
		}
	}
	for _, bad := range [][]string{{"--link", "fast"}, {"--latency", "-1s"}, {"--per-node", "0"}, {"--inside", "fast"}, {"--ranks", "-2"}, {"--infer"}} {
		code, out, errs := ampcRun("", append([]string{"plan", "zoo:mlp", "--ranks", "4"}, bad...)...)
		if code == 0 || strings.Count(errs, "\n") != 1 {
			t.Errorf("%v: %d\n%s%s", bad, code, out, errs)
		}
	}
	if _, out, _ := ampcRun("", "dump", "zoo:mlp", "--ranks", "4"); strings.Count(out, "= all_reduce ") != 3 {
		t.Errorf("want 3 messages in\n%s", out)
	}
	if code, out, errs := ampcRun("", "prove", "zoo:mlp", "--ranks", "4"); code != 0 {
		t.Errorf("%s%s", out, errs)
	}
}

// A rank's process has a thread beside its workers, and keeps what it has beyond.
func TestThreadBeside(t *testing.T) {
	defer goruntime.GOMAXPROCS(goruntime.GOMAXPROCS(0))
	for _, c := range []struct{ procs, workers, want int }{{1, 1, 2}, {2, 1, 2}, {2, 4, 5}, {8, 4, 8}} {
		goruntime.GOMAXPROCS(c.procs)
		threadBeside(c.workers)
		if n := goruntime.GOMAXPROCS(0); n != c.want {
			t.Errorf("%d workers with GOMAXPROCS %d: it becomes %d, want %d", c.workers, c.procs, n, c.want)
		}
	}
}
