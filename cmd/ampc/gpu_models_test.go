package main

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ampc/internal/golden"
	"ampc/models"
	"ampc/ptx"
	"ampc/ptx/ptxtest"
)

// Cases of testdata/gpu dump a model as a GPU's Program, and a line for each
// kernel of its PTX: parameters, instructions, the begin of its text's SHA-256.
func TestGPUDumps(t *testing.T) {
	golden.Run(t, "../../testdata/gpu", func(t *testing.T, c *golden.Case) golden.Result {
		program, text := gpuDump(t, c.Run, "program"), gpuDump(t, c.Run, "ptx")
		var lines strings.Builder
		kernels := kernelsOf(t, text)
		for _, k := range kernels {
			own := (&ptx.Module{Kernels: []*ptx.Kernel{k}}).Text()
			sum := sha256.Sum256([]byte(own))
			fmt.Fprintf(&lines, "%-24s %2d parameters %4d instructions %x\n", k.Name, len(k.Params), strings.Count(own, ";"), sum[:6])
		}
		return golden.Result{
			Sections: map[string]string{"want-program": program, "want-ptx": lines.String()},
			Counters: map[string]int{"kernels": len(kernels), "calls": strings.Count(program, " call=")},
		}
	})
}

// Every model of the zoo has a case.
func TestGPUDumpsAreComplete(t *testing.T) {
	cases, err := filepath.Glob("../../testdata/gpu/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	dumped := map[string]bool{}
	for _, file := range cases {
		c, err := golden.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		model, _, _ := strings.Cut(strings.TrimPrefix(c.Run[1], "zoo:"), "?")
		dumped[model] = true
	}
	for _, m := range models.Names() {
		if !dumped[m[0]] {
			t.Errorf("no case of testdata/gpu dumps zoo:%s", m[0])
		}
	}
}

// One kernel of each kind that the zoo's models use, in full: what a generator
// prints shows here, and every other text by its digest above.
func TestGPUKernelTexts(t *testing.T) {
	cases, err := filepath.Glob("../../testdata/gpu/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]*ptx.Kernel{}
	number := regexp.MustCompile(`_\d+$`)
	for _, file := range cases {
		c, err := golden.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range kernelsOf(t, gpuDump(t, c.Run, "ptx")) {
			kind := number.ReplaceAllString(k.Name, "")
			if kinds[kind] == nil {
				kinds[kind], k.Name = k, kind
			}
		}
	}
	m := &ptx.Module{Flavour: ptx.SM90}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		m.Kernels = append(m.Kernels, kinds[kind])
	}
	golden.File(t, "../../testdata/gpu/kernels.ptx", m.Text())
}

// TestGPUPtxas assembles the kernels of the same models for every GPU that each flavour serves.
func TestGPUPtxas(t *testing.T) {
	bin := ptxtest.Ptxas()
	if bin == "" || testing.Short() {
		t.Skip("with -short, or no ptxas in PATH and AMPC_PTXAS is not set")
	}
	cases, err := filepath.Glob("../../testdata/gpu/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	kernels := 0
	for _, file := range cases {
		c, err := golden.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		for oldest, gpus := range ptxtest.Flavours() {
			text := gpuDump(t, retarget(c.Run, fmt.Sprintf("sm_%d", oldest)), "ptx")
			for _, sm := range gpus {
				used, spills, _, err := ptxtest.Assemble(bin, t.TempDir(), text, sm)
				if err != nil {
					t.Fatal(err)
				}
				for _, line := range spills {
					t.Errorf("%s: %s", filepath.Base(file), line)
				}
				kernels += len(used)
			}
		}
	}
	t.Logf("%d kernels assembled, none spills", kernels)
}

// retarget is a command line with another value of --target.
func retarget(run []string, target string) []string {
	run = slices.Clone(run)
	run[slices.Index(run, "--target")+1] = target
	return run
}

func gpuDump(t *testing.T, run []string, stage string) string {
	t.Helper()
	code, out, errs := ampcRun("", append(slices.Clone(run), "--stage", stage)...)
	if code != 0 {
		t.Fatalf("%s: %s", strings.Join(run, " "), errs)
	}
	return out
}

func kernelsOf(t *testing.T, text string) []*ptx.Kernel {
	t.Helper()
	m, err := ptx.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return m.Kernels
}
