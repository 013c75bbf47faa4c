package ptxtest

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ampc/ptx"
)

var update = flag.Bool("update", false, "rewrite the golden texts")

// representative kernels, kept as text so that a change of a generator is seen in review.
var golden = []string{
	"cast_f32_bf16_33", "bias_gelu_64x96", "dropout_31", "adamw_4097", "row_sum_6x1023_f32_split1", "softmax_fwd_20x1024_bf16",
	"norm_fwd_res_6x768_f32", "norm_bwd_res_11x768_f32", "xent_fwd_3x50304_bf16", "embed_bwd_9x768_65_bf16",
}

// module builds every case for a flavour as one text.
func module(t *testing.T, fl ptx.Flavour, want func(name string) bool) *ptx.Module {
	t.Helper()
	m := &ptx.Module{Flavour: fl}
	for _, c := range Cases() {
		if !want(c.Name) {
			continue
		}
		l, err := c.Build(fl)
		if err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		m.Kernels = append(m.Kernels, l.Kernel)
	}
	if err := ptx.Verify(m); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestGolden(t *testing.T) {
	for _, name := range golden {
		for _, fl := range []ptx.Flavour{ptx.SM70, ptx.SM80} {
			if fl == ptx.SM70 && !strings.HasPrefix(name, "cast") {
				continue // the other flavours differ from it only in conversions
			}
			m := module(t, fl, func(n string) bool { return n == name })
			if len(m.Kernels) != 1 {
				t.Fatalf("%d cases named %s", len(m.Kernels), name)
			}
			file := filepath.Join("..", "..", "testdata", "ptx", fmt.Sprintf("%s_sm%d.ptx", name, fl.SM))
			if *update {
				if err := os.WriteFile(file, []byte(m.Text()), 0o644); err != nil {
					t.Fatal(err)
				}
				continue
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if string(want) != m.Text() {
				t.Errorf("%s differs from what is generated now; look at the difference, then run with -update", file)
			}
		}
	}
}

// flavours are those that are emitted, by their oldest GPU.
var flavours = map[int]ptx.Flavour{70: ptx.SM70, 80: ptx.SM80, 90: ptx.SM90}

// TestPtxas assembles every kernel for every GPU its flavour serves, and wants no spills.
func TestPtxas(t *testing.T) {
	bin := Ptxas()
	if bin == "" {
		t.Skip("no ptxas in PATH and AMPC_PTXAS is not set")
	}
	for oldest, fl := range flavours {
		text := module(t, fl, func(string) bool { return true }).Text()
		for _, sm := range Flavours()[oldest] {
			if testing.Short() && sm != 90 {
				continue
			}
			kernels, spills, _, err := Assemble(bin, t.TempDir(), text, sm)
			if err != nil {
				t.Fatal(err)
			}
			if len(kernels) != len(Cases()) {
				t.Errorf("sm_%d: %d kernels in the report of %d", sm, len(kernels), len(Cases()))
			}
			for _, line := range spills {
				t.Error(line)
			}
			t.Logf("sm_%d: %d kernels, %d with spills", sm, len(kernels), len(spills))
		}
	}
}

// TestPtxasWideRows assembles kernels over rows of any length, which the interpreter would take long for.
func TestPtxasWideRows(t *testing.T) {
	bin := Ptxas()
	if bin == "" {
		t.Skip("no ptxas in PATH and AMPC_PTXAS is not set")
	}
	for _, oldest := range []int{70, 90} {
		m := &ptx.Module{Flavour: flavours[oldest]}
		add := func(build func(ptx.Flavour) (*ptx.Launch, error)) {
			l, err := build(flavours[oldest])
			if err != nil {
				t.Fatal(err)
			}
			l.Kernel.Name = fmt.Sprintf("k%d_%s", len(m.Kernels), l.Kernel.Name)
			m.Kernels = append(m.Kernels, l.Kernel)
		}
		for _, cols := range []int{4096, 8191, 8192, 9000, 16384, 16385, 32768, 100000} {
			for _, d := range []ptx.DType{ptx.Float32, ptx.BFloat16} {
				for _, s := range []ptx.Norm{residual(4096, cols, d, ptx.BFloat16), {Name: "norm", Rows: 4096, Cols: cols, In: d, Out: ptx.BFloat16, Bias: true}} {
					add(s.Forward)
				}
				for _, s := range []ptx.Norm{trunk(4096, cols, d, ptx.BFloat16), {Name: "norm_back", Rows: 4096, Cols: cols, In: d, Out: ptx.BFloat16, Bias: true}} {
					add(s.Backward)
				}
				for _, log := range []bool{false, true} {
					add(ptx.Softmax{Name: "softmax_back", Rows: 4096, Cols: cols, In: d, Out: d, Log: log}.Backward)
				}
			}
		}
		kernels, spills, _, err := Assemble(bin, t.TempDir(), m.Text(), oldest)
		if err != nil {
			t.Fatal(err)
		}
		if len(kernels) != len(m.Kernels) {
			t.Errorf("sm_%d: %d kernels in the report of %d", oldest, len(kernels), len(m.Kernels))
		}
		for _, line := range spills {
			t.Error(line)
		}
	}
}

var kernelsDir = flag.String("kernels", "", "folder to write every kernel's text to, one file for each flavour")

// TestWriteKernels writes the texts for ptxas on another machine; see bench/gpu/build.sh.
func TestWriteKernels(t *testing.T) {
	if *kernelsDir == "" {
		t.Skip("no -kernels folder given")
	}
	for _, fl := range []ptx.Flavour{ptx.SM70, ptx.SM80, ptx.SM90} {
		file := filepath.Join(*kernelsDir, fmt.Sprintf("kernels_sm%d.ptx", fl.SM))
		if err := os.WriteFile(file, []byte(module(t, fl, func(string) bool { return true }).Text()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
