package models_test

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ampc"
	"ampc/internal/sass"
	"ampc/lower"
	"ampc/lower/sm"
	"ampc/models"
	"ampc/passes"
	"ampc/ptx"
	"ampc/ptx/ptxtest"
)

// What TestMachineCode requires. A launch that moves streaming bytes or more needs inFlight bytes of
// loads in flight on each multiprocessor: at 4.8 TB/s and 700 ns an H200 has 25 KB on the way to
// each. Blocks that process many rows each, between one wave and four, must fill tail of their waves.
const (
	streaming = 16 << 20
	inFlight  = 24 << 10
	tail      = 0.8
)

// allowed are the kinds of kernels that do not, and why.
var allowed = map[string]string{
	"embedding":           "rows are gathered, by a warp each: 1.9 waves of 16 blocks",
	"max_pool":            "one load of 16 bytes at a time, by threads that hold the norms of eight channels",
	"batch":               "a block for each 32,768 elements, whatever the number of multiprocessors",
	"sums":                "a block for each 32,768 elements, whatever the number of multiprocessors",
	"transposing cluster": "reads along one dimension and writes along another: 0.2 of 97 GB",
}

// measured is a distinct launch of a step with its machine code.
type measured struct {
	step     *lower.Step
	count    int // launches
	used     ptxtest.Used
	traffic  sass.Traffic
	resident int // blocks of a multiprocessor, by registers, threads and shared memory
	blocks   int // the most that it has at a time
	waves    float64
	bytes    int // in flight on a multiprocessor
	perElem  float64
}

// kind is the kernel's name without its number.
func (m *measured) kind() string {
	name := m.step.Launch.Kernel
	name = name[:strings.LastIndexByte(name, '_')]
	if m.step.Kind == lower.KindCluster && slices.ContainsFunc(m.step.Cluster.Loads, func(a lower.Access) bool { return len(a.Strides) > 0 && a.Strides[len(a.Strides)-1] > 1 }) {
		return "transposing " + name
	}
	return name
}

// faults say what the launch lacks.
func (m *measured) faults() (list []string) {
	if m.bytes < inFlight {
		list = append(list, fmt.Sprintf("%d bytes in flight on a multiprocessor, less than %d: loads of %v bytes, %d registers, %d blocks of %d", m.bytes, inFlight, m.traffic.Loads, m.used.Registers, m.blocks, m.resident))
	}
	if filled := m.waves / math.Ceil(m.waves); m.traffic.Loop && m.waves > 1 && m.waves < 4 && filled < tail {
		list = append(list, fmt.Sprintf("%.1f waves of %d blocks, %.0f%% filled", m.waves, m.resident, 100*filled))
	}
	return list
}

// TestMachineCode assembles the kernels of the two models of the speed comparison, at their full size
// and in bf16, and measures the machine code of every distinct launch. -v prints all of them.
func TestMachineCode(t *testing.T) {
	assembler := ptxtest.Ptxas()
	if assembler == "" {
		t.Skip("no ptxas in PATH and AMPC_PTXAS is not set")
	}
	disassembler := filepath.Join(filepath.Dir(assembler), "nvdisasm")
	if _, err := os.Stat(disassembler); err != nil {
		t.Skip("no nvdisasm beside ptxas")
	}
	used := map[string]bool{}
	for _, spec := range []string{"gpt2", "resnet50"} {
		for _, gpu := range []int{80, 90} {
			p := lowered(t, spec, fmt.Sprint("sm_", gpu), "mixed-bf16")
			list := measure(t, p, machineCode(t, assembler, disassembler, sm.Modules(p), gpu), sass.GPUs[gpu])
			t.Logf("%s on sm_%d\n%s\n%s", spec, gpu, summary(list), table(list))
			for _, m := range list {
				if m.step.Bytes < streaming || m.traffic.Loaded == 0 {
					continue
				}
				faults := m.faults()
				if used[m.kind()] = used[m.kind()] || len(faults) > 0; allowed[m.kind()] != "" {
					continue
				}
				for _, fault := range faults {
					t.Errorf("%s on sm_%d: %s: %s", spec, gpu, m.step.Launch, fault)
				}
			}
		}
	}
	for kind := range allowed {
		if !used[kind] {
			t.Errorf("%s is as required: it needs no reason", kind)
		}
	}
}

// lowered is a model's training step under a policy, as bench trains it: the update writes the 16-bit
// copies of weights.
func lowered(t *testing.T, spec, target, policy string) *lower.Program {
	t.Helper()
	z, err := models.Open(spec)
	if err != nil {
		t.Fatal(err)
	}
	cfg := z.Steps[0].Config
	if cfg.Policy, err = ampc.PolicyNamed(policy); err != nil {
		t.Fatal(err)
	}
	cfg.Compile.WeightCopies = cfg.Policy.Mixed()
	g, pc, err := z.Model.Source(cfg, z.Steps[0].Losses...)
	if err != nil {
		t.Fatal(err)
	}
	pc.Caps = sm.Must(target).Caps()
	if err := passes.Run(g, pc); err != nil {
		t.Fatal(err)
	}
	p, err := lower.Lower(g, sm.Must(target))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// kernel is the machine code of a kernel.
type kernel struct {
	ptxtest.Used
	code *sass.Function
}

// machineCode is the code of every kernel of the modules, by name.
func machineCode(t *testing.T, assembler, disassembler string, modules []*ptx.Module, gpu int) map[string]kernel {
	t.Helper()
	all, dir := map[string]kernel{}, t.TempDir()
	for _, m := range modules {
		used, spills, cubin, err := ptxtest.Assemble(assembler, dir, m.Text(), gpu)
		if err != nil || len(spills) > 0 {
			t.Fatal(err, spills)
		}
		text, err := exec.Command(disassembler, "-c", cubin).Output()
		if err != nil {
			t.Fatal(err)
		}
		list, err := sass.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range list {
			all[f.Name] = kernel{used[f.Name], f}
		}
	}
	return all
}

// measure lists the distinct launches of a Program, those that move most first.
func measure(t *testing.T, p *lower.Program, code map[string]kernel, g sass.GPU) []*measured {
	t.Helper()
	byLaunch := map[string]*measured{}
	for part := range p.Parts {
		for i := range p.Parts[part] {
			s := &p.Parts[part][i]
			if s.Launch == nil {
				continue
			}
			key := s.Launch.String()
			if m := byLaunch[key]; m != nil {
				m.count++
				continue
			}
			k := code[s.Launch.Kernel]
			if k.code == nil || k.Registers == 0 {
				t.Fatalf("no machine code of %s", s.Launch.Kernel)
			}
			m := &measured{step: s, count: 1, used: k.Used, traffic: sass.Measure(k.code), resident: g.Resident(k.Registers, k.Shared, s.Launch.Block)}
			grid := s.Launch.Grid[0] * s.Launch.Grid[1] * s.Launch.Grid[2]
			m.blocks = min(m.resident, (grid+g.Multiprocessors-1)/g.Multiprocessors)
			m.waves = float64(grid) / float64(m.resident*g.Multiprocessors)
			m.bytes = m.blocks * s.Launch.Block * m.traffic.InFlight
			m.perElem = float64(m.traffic.Instructions) * float64(elementBytes(s.Launch)) / float64(max(m.traffic.Loaded, 1))
			byLaunch[key] = m
		}
	}
	list := slices.Collect(maps.Values(byLaunch))
	slices.SortFunc(list, func(a, b *measured) int {
		return cmp.Or(cmp.Compare(int64(b.count)*b.step.Bytes, int64(a.count)*a.step.Bytes), cmp.Compare(a.step.Launch.String(), b.step.Launch.String()))
	})
	return list
}

// elementBytes is what a launch reads for each element: the sizes of its operands that have a
// quarter of the elements of the longest.
func elementBytes(l *lower.Launch) (n int64) {
	takes := l.Row
	if takes == nil {
		takes = l.Takes
	}
	most := int64(0)
	for _, a := range takes {
		most = max(most, a.Elems)
	}
	for _, a := range takes {
		if a.Read && a.Elems >= most/4 {
			n += a.DType.Size()
		}
	}
	return n
}

// summary has a row of a table for each kind of launch, from the least to the most of its launches.
func summary(list []*measured) string {
	var b strings.Builder
	var kinds []string
	for _, m := range list {
		if !slices.Contains(kinds, m.kind()) && m.step.Bytes >= streaming {
			kinds = append(kinds, m.kind())
		}
	}
	for _, kind := range kinds {
		var count, moved int
		var blocks, registers, flight, widths span
		var work span
		for _, m := range list {
			if m.kind() != kind || m.step.Bytes < streaming {
				continue
			}
			count, moved = count+m.count, moved+m.count*int(m.step.Bytes)
			registers.add(float64(m.used.Registers))
			blocks.add(float64(m.blocks))
			flight.add(float64(m.bytes) / 1024)
			work.add(m.perElem)
			for w := range m.traffic.Loads {
				widths.add(float64(w))
			}
		}
		fmt.Fprintf(&b, "| %s | %d | %.2f | %s | %s | %s | %s | %s |\n", kind, count, float64(moved)/1e9, registers, blocks, widths, flight, work)
	}
	return b.String()
}

// span is the least and the most of some numbers.
type span struct{ least, most float64 }

func (s *span) add(x float64) {
	if s.most == 0 || x < s.least {
		s.least = x
	}
	s.most = max(s.most, x)
}

func (s span) String() string {
	from, to := fmt.Sprintf("%.0f", s.least), fmt.Sprintf("%.0f", s.most)
	if from == to {
		return to
	}
	return from + "–" + to
}

func table(list []*measured) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-24s %3s %16s %6s %4s %5s %6s %6s %-20s %9s %9s %6s\n", "launch", "n", "grid×block", "MB", "regs", "smem", "blocks", "waves", "loads (bytes×n)", "in flight", "loop", "i/elem")
	for _, m := range list {
		if m.step.Bytes < streaming {
			continue
		}
		var loads []string
		for _, w := range slices.Backward(slices.Sorted(maps.Keys(m.traffic.Loads))) {
			loads = append(loads, fmt.Sprintf("%d×%d", w, m.traffic.Loads[w]))
		}
		l := m.step.Launch
		fmt.Fprintf(&b, "%-24s %3d %16s %6d %4d %5d %2d/%2d %6.1f %-20s %9d %9v %6.1f\n", l.Kernel, m.count, fmt.Sprintf("%dx%dx%d×%d", l.Grid[0], l.Grid[1], l.Grid[2], l.Block), m.step.Bytes/1e6,
			m.used.Registers, m.used.Shared, m.blocks, m.resident, m.waves, strings.Join(loads, " "), m.bytes, m.traffic.Loop, m.perElem)
	}
	return b.String()
}
