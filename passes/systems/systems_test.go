package systems

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"ampc/ir"
)

func load(t *testing.T, name string, low ir.DType) *System {
	t.Helper()
	s, err := Load(name, low)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func eachSystem(t *testing.T, f func(t *testing.T, s *System, low ir.DType)) {
	for _, name := range Names() {
		for _, low := range []ir.DType{ir.F16, ir.BF16} {
			t.Run(name+"-"+low.String(), func(t *testing.T) { f(t, load(t, name, low), low) })
		}
	}
}

// fact says whether a row of the reference table belongs to a system's list
// for low.
func fact(name string, low ir.DType, row []string) bool {
	system, variant := row[0], row[1]
	switch name {
	case "torch":
		return system == "torch-cuda-autocast"
	case "torch-cpu":
		return system == "torch-cpu-autocast"
	case "apex-o1":
		return strings.HasPrefix(system, "apex-")
	case "tensorflow":
		return system == map[ir.DType]string{ir.F16: "tf-grappler-fp16-cuda", ir.BF16: "tf-grappler-bf16-onednn"}[low]
	case "paddle":
		return system == "paddle-dygraph" && (variant == "fp16,bf16 O1" || variant == "fp16 O1" && low == ir.F16)
	case "tvm":
		return system == "tvm-relax"
	}
	return system == name
}

// The lists are the facts of the reference table, no more and no less.
func TestListsAreTheFacts(t *testing.T) {
	data, err := os.ReadFile("../../../shared/reference/policy-tables.tsv")
	if err != nil {
		t.Skipf("no table of facts: %v", err)
	}
	eachSystem(t, func(t *testing.T, s *System, low ir.DType) {
		want := map[string]Category{}
		for line := range strings.Lines(string(data)) {
			row := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
			if len(row) < 4 || !fact(s.Name, low, row) {
				continue
			}
			op := row[2]
			if strings.HasPrefix(op, "*") {
				op = unlisted
			}
			want[op] = Category(row[3])
		}
		if len(want) < 50 {
			t.Fatalf("the table has %d rows about %s", len(want), s.Name)
		}
		for _, name := range slices.Sorted(maps.Keys(want)) {
			if s.Category[name] != want[name] {
				t.Errorf("%s is %q, the table says %s", name, s.Category[name], want[name])
			}
		}
		for name := range s.Category {
			if want[name] == "" {
				t.Errorf("%s is in the list and not in the table", name)
			}
		}
	})
}

// Every list says what becomes of the rest, every name maps once, and no two
// listed names give one of our ops different classes.
func TestSystemsLoad(t *testing.T) {
	eachSystem(t, func(t *testing.T, s *System, low ir.DType) {
		if s.Category[unlisted] == "" {
			t.Error("no category for unlisted ops")
		}
		if _, err := s.Classes(); err != nil {
			t.Error(err)
		}
		for name := range s.Part {
			if s.Ops[name] != nil {
				t.Errorf("%s decides about %v and is part of %v", name, s.Ops[name], s.Part[name])
			}
		}
		for name, ops := range s.Ops {
			if len(slices.Compact(slices.Sorted(slices.Values(ops)))) != len(ops) {
				t.Errorf("%s maps twice to one op: %v", name, ops)
			}
		}
		t.Logf("%d names mapped, %d listed, unmapped: %s", len(s.Ops), len(s.Category)-1, strings.Join(s.Unmapped(), " "))
	})
}

// At least 120 names of torch have an op of ours that they decide about, most
// of them listed on CUDA or on CPU; the rest fall through by their absence.
func TestTorchIsMapped(t *testing.T) {
	cuda, cpu := load(t, "torch", ir.F16), load(t, "torch-cpu", ir.F16)
	count := func(names map[string][]ir.Op) (listed int) {
		for name := range names {
			if cuda.Category[name] != "" || cpu.Category[name] != "" {
				listed++
			}
		}
		return listed
	}
	listed, part := count(cuda.Ops), count(cuda.Part)
	if len(cuda.Ops) < 120 || listed < 100 {
		t.Errorf("%d names of torch are mapped, %d of them listed", len(cuda.Ops), listed)
	}
	t.Logf("%d names of torch are mapped: %d that it lists and %d that it does not; %d more listed names are part of an op of ours", len(cuda.Ops), listed, len(cuda.Ops)-listed, part)
}

// Facts that are easy to get wrong, by our names.
func TestClasses(t *testing.T) {
	for _, c := range []struct {
		system string
		low    ir.DType
		op     ir.Op
		want   ir.Class
	}{
		{"torch", ir.F16, ir.OpPrelu, ir.Low},
		{"torch", ir.F16, ir.OpReduceMean, ir.PromoteC},
		{"torch", ir.F16, ir.OpBatchNorm, ir.PromoteC},
		{"torch-cpu", ir.BF16, ir.OpSoftmax, ir.PromoteC},
		{"torch-cpu", ir.BF16, ir.OpSoftmaxGrad, ir.PromoteC},
		{"apex-o1", ir.F16, ir.OpGelu, ir.Keep},
		{"apex-o1", ir.F16, ir.OpGeluGrad, ir.Keep},
		{"tensorflow", ir.F16, ir.OpRsqrt, ir.Keep},
		{"tensorflow", ir.BF16, ir.OpRsqrt, ir.PromoteC},
		{"tensorflow", ir.F16, ir.OpLayerNorm, ir.Keep}, // composed there: no kind of that name
		{"oneflow", ir.F16, ir.OpBCEWithLogits, ir.Low},
		{"oneflow", ir.F16, ir.OpLSTM, ir.Keep},
		{"paddle", ir.BF16, ir.OpRope, ir.Low},
		{"paddle", ir.BF16, ir.OpEmbedding, ir.Keep},
		{"tvm", ir.F16, ir.OpExp, ir.PromoteC},
		{"tvm", ir.F16, ir.OpTril, ir.Keep},
	} {
		classes, err := load(t, c.system, c.low).Classes()
		if err != nil {
			t.Fatal(err)
		}
		got, ok := classes[c.op]
		if !ok {
			got = c.op.Def().Class
		}
		if got != c.want {
			t.Errorf("%s-%s: %s is %s, want %s", c.system, c.low, c.op, got, c.want)
		}
	}
}

func TestUnknownSystem(t *testing.T) {
	if _, err := Load("caffe", ir.F16); err == nil || !strings.Contains(err.Error(), `no system "caffe"; there are apex-o1, `) {
		t.Errorf("got %v", err)
	}
}
