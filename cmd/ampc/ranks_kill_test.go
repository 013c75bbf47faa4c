package main

import (
	"encoding/csv"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

var everyLauncher = flag.Bool("every-launcher", false, "TestLossesOfRanks tries every policy and number of ranks under every launcher")
var rankKills = flag.Int("rank-kills", 1, "how often TestRanksAreKilled kills a rank of each run")

// TestRanksAreKilled kills a rank of a run at a random time, and resumes on another number of ranks,
// until -rank-kills are done. In the end the run has each step once, with the loss of a run in one
// process that nothing disturbs. With --slices, losses and checkpoint are the same bits.
func TestRanksAreKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("runs that are killed take a quarter of a minute; run without -short")
	}
	text, steps := rhyme(t), 500**rankKills // more than the killed runs have time for
	for _, v := range []struct {
		name, spec string
		args       []string
		ranks      []int
	}{
		{"sums", shared, nil, []int{3, 2, 4}},
		{"slices", strings.Replace(shared, "batch=12", "batch=16", 1), []string{"--slices", "4"}, []int{4, 2}},
		{"shards", shared, []string{"--shard"}, []int{2, 3}},
	} {
		if v.name == "shards" && *rankKills == 1 {
			continue // TestKilledBetweenShards kills between any two steps of a save
		}
		arguments := append([]string{"train", v.spec, "--text", text, "--quiet", "--steps", fmt.Sprint(steps), "--save-every", "30ms"}, v.args...)
		alone := filepath.Join(t.TempDir(), "o")
		if code, _, errs := ampcRun("", append(arguments, "--out", alone)...); code != 0 {
			t.Fatal(errs)
		}
		want := lossesOf(t, alone)
		for _, l := range launchers {
			t.Run(v.name+"/"+l.name, func(t *testing.T) {
				dir := t.TempDir()
				k := &killer{start: l.start, rank: l.rank, dir: dir, steps: steps, random: rand.New(rand.NewPCG(1, uint64(len(l.name))))}
				k.train(t, append(arguments, "--out", "o"), v.ranks)
				got := filepath.Join(dir, "o")
				if v.name != "slices" {
					compareLosses(t, lossesOf(t, got), want)
					return
				}
				if !slices.Equal(lossesOf(t, got), want) {
					t.Error("losses are not those of the run that nothing disturbed")
				}
				if !maps.Equal(tensorsOf(t, filepath.Join(got, checkpointFile)), tensorsOf(t, filepath.Join(alone, checkpointFile))) {
					t.Error("weights and training state are not those of the run that nothing disturbed")
				}
			})
		}
	}
}

// killer kills ranks of a run in the folder o of dir.
type killer struct {
	start  []string
	rank   string // the environment variable of a rank's number
	dir    string
	steps  int
	random *rand.Rand
}

// train runs a command line on so many ranks in turn, of which each run but the last loses a rank.
func (k *killer) train(t *testing.T, args []string, ranks []int) {
	t.Helper()
	killed, resume := 0, []string{"train", "--resume=o", "--quiet", "--save-every", "30ms"}
	for run := 0; killed < *rankKills && run < 2**rankKills; run++ {
		n := ranks[run%len(ranks)]
		g := onRanks(t, k.start, n, k.dir, args...)
		if !g.saves(t, filepath.Join(k.dir, "o"), k.steps) {
			break // trained to the end
		}
		time.Sleep(time.Duration(k.random.IntN(60)) * time.Millisecond)
		if g.kill(k.rank, k.random.IntN(n)) {
			killed++
		}
		if out, err := g.end(t, time.Minute); err == nil && !strings.Contains(out, "held out") {
			t.Fatalf("a run that lost a rank ends well\n%s", out)
		}
		args = resume
	}
	o, err := original(filepath.Join(k.dir, "o"))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d kills, the last one after step %d of %d", killed, o.done, k.steps)
	if killed < *rankKills {
		t.Errorf("%d kills before the run had ended, want %d", killed, *rankKills)
	}
	if o.done == k.steps {
		return // the last rank was killed after the last step was saved
	}
	if out, err := onRanks(t, k.start, 2, k.dir, resume...).end(t, 10*time.Minute); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// saves waits for the next checkpoint of a run of so many steps; false where it is the last.
func (g *grouped) saves(t *testing.T, dir string, steps int) bool {
	t.Helper()
	path := filepath.Join(dir, checkpointFile)
	before, _ := os.Stat(path)
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if now, err := os.Stat(path); err == nil && (before == nil || now.ModTime().After(before.ModTime())) {
			if o, err := original(dir); err == nil && o.done == steps {
				g.end(t, time.Minute)
				return false
			}
			return true
		}
	}
	g.Process.Kill()
	t.Fatalf("no checkpoint within a minute\n%s", g.out.String())
	return false
}

// lossesOf are the losses of a run's steps, of which each must be there once.
func lossesOf(t *testing.T, dir string) []float64 {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, curvesTable))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var losses []float64
	for i, r := range rows[1:] {
		step, _ := strconv.Atoi(r[0])
		loss, err := strconv.ParseFloat(r[2], 64)
		if step != i+1 || err != nil {
			t.Fatalf("line %d of %s is %q, want step %d with its loss", i+2, f.Name(), r, i+1)
		}
		losses = append(losses, loss)
	}
	return losses
}

// compareLosses wants equal losses at first, except for the order of sums, and in the end
// means over a hundred steps that differ little: small differences grow.
func compareLosses(t *testing.T, got, want []float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d steps, want %d", len(got), len(want))
	}
	for i := range 50 {
		if math.Abs(got[i]-want[i]) > 1e-3*want[i] {
			t.Errorf("loss %g at step %d, undisturbed %g", got[i], i+1, want[i])
		}
	}
	mean := func(x []float64) (sum float64) {
		for _, v := range x {
			sum += v / float64(len(x))
		}
		return sum
	}
	for i := 0; i+100 <= len(got); i += 100 {
		if a, b := mean(got[i:i+100]), mean(want[i:i+100]); math.Abs(a-b) > 0.05*b {
			t.Errorf("steps %d to %d have mean loss %g, undisturbed %g", i+1, i+100, a, b)
		}
	}
}

// TestLossesOfRanks: over 100 steps of real text the losses of 2 and 4 ranks differ from those of one
// process by less than those of another seed do.
func TestLossesOfRanks(t *testing.T) {
	text, err := filepath.Abs("../../../shared/data/tinyshakespeare.txt")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(text); err != nil {
		t.Skip(err)
	}
	const steps = 100
	arguments := func(out, policy string, more ...string) []string {
		return append([]string{"train", "zoo:gpt?layers=2&heads=2&dim=32&batch=8&seq=32&dropout=0.1", "--text", text, "--out", out, "--policy", policy, "--quiet", "--steps", fmt.Sprint(steps)}, more...)
	}
	policies, counts := []string{"f32", "mixed-f16", "mixed-bf16"}, []int{2, 4}
	if testing.Short() {
		policies, counts = policies[1:2], counts[:1]
	}
	apart := func(x, y []float64) (sum float64) {
		for i := range steps {
			sum += math.Abs(x[i]-y[i]) / steps
		}
		return sum
	}
	for i, policy := range policies {
		dir := t.TempDir()
		alone := func(out string, more ...string) []float64 {
			if code, _, errs := ampcRun("", arguments(filepath.Join(dir, out), policy, more...)...); code != 0 {
				t.Fatal(errs)
			}
			return lossesOf(t, filepath.Join(dir, out))
		}
		want := alone("one")
		spread := apart(alone("seed", "--seed", "2"), want)
		for j, l := range launchers {
			for k, n := range counts {
				if !*everyLauncher && (i+j+k)%len(launchers) != 0 {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%d", policy, l.name, n), func(t *testing.T) {
					out := filepath.Join(dir, fmt.Sprint(l.name, n))
					if said, err := onRanks(t, l.start, n, dir, arguments(out, policy)...).end(t, time.Minute); err != nil {
						t.Fatalf("%v\n%s", err, said)
					}
					if off := apart(lossesOf(t, out), want); off > spread {
						t.Errorf("losses differ by %g, those of another seed by %g", off, spread)
					} else {
						t.Logf("losses differ by %.2g, those of another seed by %.2g", off, spread)
					}
				})
			}
		}
	}
}
