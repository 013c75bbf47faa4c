package passes

import (
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"ampc/internal/golden"
	"ampc/ir"
)

// TestGoldens runs testdata/passes/*/*.txtar; a pass has the folder of its name. The run line is
//
//	dump [--policy NAME|file] [--passes a,b] [--disable a,b] [--reasons] [--check]
//
// over the graph in section in, for passes that need no configuration of a step; section policy
// holds a policy file. For others it is compile with the options of goldenOptions. A section
// want.error pins the message of a run that must fail, want.notes the notes.
func TestGoldens(t *testing.T) {
	folders, err := filepath.Glob("../testdata/passes/*")
	if err != nil || len(folders) < 20 {
		t.Fatalf("%d folders: %v", len(folders), err)
	}
	for _, f := range folders {
		t.Run(filepath.Base(f), func(t *testing.T) { golden.Run(t, f, runGolden) })
	}
}

// testedElsewhere are the passes without a folder in testdata/passes, and where
// their tests are.
var testedElsewhere = map[string]string{
	"views":    "testdata/lower/views.txtar and runtime/cpu/views_test.go",
	"epsilon":  "epsilon_test.go",
	"gather":   "shard_test.go",
	"chunks":   "models/chunks_test.go",
	"memory":   "memory_test.go and models/memory_test.go",
	"launches": "launches_test.go and testdata/lower/gpu-ends.txtar",
	"prove":    "passes/prove and internal/mutants",
}

// Every pass has goldens, and the table of pairs says why it stands where it does.
func TestEveryPassHasGoldens(t *testing.T) {
	paired := map[string]bool{}
	for _, o := range order {
		paired[o.before], paired[o.after] = true, true
	}
	for _, p := range Pipeline() {
		cases, _ := filepath.Glob("../testdata/passes/" + p.Name + "/*.txtar")
		if where := testedElsewhere[p.Name]; len(cases) == 0 && where == "" {
			t.Errorf("pass %s: add a case to testdata/passes/%s", p.Name, p.Name)
		} else if len(cases) > 0 && where != "" {
			t.Errorf("pass %s: testdata/passes/%s has cases, testedElsewhere says %s", p.Name, p.Name, where)
		}
		if !paired[p.Name] {
			t.Errorf("pass %s: add a pair to the table order in pass.go, with the reason for its place", p.Name)
		}
	}
}

func runGolden(t *testing.T, c *golden.Case) golden.Result {
	switch c.Run[0] {
	case "dump":
		return runDump(t, c)
	case "compile":
		return runCompile(t, c)
	}
	t.Fatalf("run: no command %s", c.Run[0])
	return golden.Result{}
}

func runDump(t *testing.T, c *golden.Case) golden.Result {
	g, err := ir.Parse(c.Name, []byte(c.Section("in")))
	if err != nil {
		t.Fatal(err)
	}
	cfg, mode, err := goldenConfig(c)
	res := golden.Result{Counters: map[string]int{}, Sections: map[string]string{}}
	var notes strings.Builder
	cfg.After = func(e Event) {
		maps.Copy(res.Counters, e.Counters)
		for _, n := range e.Notes {
			fmt.Fprintln(&notes, n)
		}
	}
	if err == nil {
		err = Run(g, cfg)
	}
	if err != nil {
		if !c.Has("want.error") {
			t.Fatal(err)
		}
		res.Sections["want.error"] = err.Error() + "\n"
		return res
	}
	var b strings.Builder
	if err := g.Print(&b, mode); err != nil {
		t.Fatal(err)
	}
	res.Sections["want"] = b.String()
	res.Sections["want.notes"] = notes.String()
	return res
}

func goldenConfig(c *golden.Case) (cfg Config, mode ir.PrintMode, err error) {
	cfg.Policy = MixedF16()
	run := c.Run
	for i := 1; i < len(run); i++ {
		switch run[i] {
		case "--reasons":
			mode |= ir.Reasons
		case "--check":
			cfg.Check = true
		case "--keeps":
			cfg.Caps.Keeps = true
		case "--one-end":
			cfg.Caps.SingleStore = true
		case "--recomputes-pools":
			cfg.Caps.RecomputesPools = true
		case "--policy", "--passes", "--disable", "--no-load", "--no-store":
			i++
			if err := goldenOption(&cfg, c, run[i-1], run[i]); err != nil {
				return cfg, mode, err
			}
		default:
			return cfg, mode, fmt.Errorf("run: no option %s", run[i])
		}
	}
	return cfg, mode, nil
}

func goldenOption(cfg *Config, c *golden.Case, option, value string) (err error) {
	ops := map[ir.Op]bool{}
	list := strings.Split(value, ",")
	for _, name := range list {
		if op, ok := ir.OpNamed(name); ok {
			ops[op] = true
		}
	}
	switch option {
	case "--policy":
		if value == "file" {
			cfg.Policy, err = ParsePolicy("policy", []byte(c.Section("policy")))
		} else {
			cfg.Policy, err = PolicyNamed(value)
		}
	case "--passes":
		cfg.Only = list
	case "--disable":
		cfg.Disable = list
	case "--no-load":
		cfg.Caps.NoLoad = ops
	case "--no-store":
		cfg.Caps.NoStore = ops
	}
	return err
}
