//go:build linux && amd64 && !nocuda

package cuda

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestConvCalls follows a convolution from the graph to the execution, as cuDNN sees it: kind.attribute
// and values, descriptors as #kind.
func TestConvCalls(t *testing.T) {
	so, log := fakeLog(t)
	n, err := openDnn(openLibrary(libDNN, []string{so}), &library{})
	must(t, err)
	if n.Version() != 91501 {
		t.Errorf("version %d", n.Version())
	}
	log()
	c := Conv{
		Kind: DnnConvFilter, Type: DnnHalf, Out: DnnFloat, NHWC: true,
		X: []int64{8, 64, 56, 55}, W: []int64{32, 64, 3, 3}, Y: []int64{8, 32, 28, 28},
		Shape: ConvShape{Pads: []int64{1, 1}, EndPads: []int64{1, 2}, Strides: []int64{2, 2}, Dilations: []int64{1, 1}},
	}
	p, err := FirstPlan(n, c.Graph(), DnnOptions{Deterministic: true, Workspace: 1000})
	must(t, err)
	expectLog(t, "plan", log(),
		"1.100 e1:0", "1.101 e7:1", "1.106 2", "1.105 1 1", "1.104 1 2", "1.103 2 2", "1.102 1 1", "11.714 #1",
		"17.901 e1:2", "17.902 8 64 56 55", "17.903 197120 1 3520 64", "17.906 1", "17.900 16", "11.716 #17",
		"17.901 e1:0", "17.902 32 64 3 3", "17.903 576 1 192 64", "17.906 2", "17.900 16", "11.715 #17",
		"17.901 e1:2", "17.902 8 32 28 28", "17.903 25088 1 896 32", "17.906 3", "17.900 16", "11.717 #17",
		"11.712 1", "11.713 0", "15.800 handle 0xdd", "15.801 #11",
		"4.201 #15", "4.200 e8:3", "destroy 2", "5.400 handle 0xdd", "5.401 #3", "destroy 5", "destroy 2", "5.400 handle 0xdd", "5.401 #3")
	if p.Workspace() != 100 {
		t.Errorf("workspace %d", p.Workspace())
	}
	must(t, p.Run([]Ptr{0x10, 0x20, 0x30}, 0x40, 0x51))
	expectLog(t, "run", log(), "16.1000 1 2 3", "16.1001 0x10 0x20 0x30", "16.1003 0x40", "setstream 0xdd 0x51", "execute 0xdd 5 16", "destroy 16")
	must(t, p.Run([]Ptr{0x10, 0x20, 0x30}, 0x40, 0x51))
	must(t, p.Run([]Ptr{0x10, 0x20, 0x30}, 0x40, 0x52))
	if l := log(); strings.Count(l, "execute") != 2 || strings.Contains(l, "setstream 0xdd 0x51") || !strings.Contains(l, "setstream 0xdd 0x52") {
		t.Errorf("one handle for each stream:\n%s", l)
	}
	if err := p.Run([]Ptr{1}, 0, 1); err == nil {
		t.Error("one tensor of three is enough")
	}
	must(t, errors.Join(p.Close(), n.Close()))
	if l := log(); strings.Count(l, "destroy 3") != 16 || !strings.HasPrefix(l, "destroy 5") || strings.Count(l, "dnndestroy 0xdd") != 3 {
		t.Errorf("closing:\n%s", l)
	}
}

// TestAttentionCalls checks the operations of the composite graph in order, and the scalars handed
// over by value.
func TestAttentionCalls(t *testing.T) {
	so, log := fakeLog(t)
	n, err := openDnn(openLibrary(libDNN, []string{so}), &library{})
	must(t, err)
	a := Attention{Type: DnnBFloat16, B: 2, H: 3, Sq: 128, Skv: 128, D: 64, Scale: 0.125, Causal: true, Version: 90600}
	for _, c := range []struct {
		g    *DnnGraph
		ops  string
		want []string
	}{
		{a.Forward(), "#19 #13 #13 #13 #13 #13 #22 #13 #13 #22 #13 #13 #13 #19", []string{"=0.125", "=-3.40282e+38"}},
		{a.Backward(), "#13 #22 #13 #19 #13 #13 #13 #13 #13 #13 #13 #31 #19 #19 #13 #13 #13 #31 #19 #31 #19 #13", []string{"=0.125", "=-3.40282e+38", "=1"}},
	} {
		log()
		p, err := FirstPlan(n, c.g, DnnOptions{Workspace: 1 << 30})
		must(t, err)
		must(t, p.Run(make([]Ptr, len(c.g.Feeds)), 0, 1))
		l := log()
		if !strings.Contains(l, "15.801 "+c.ops+"\n") {
			t.Errorf("%s: operations are not %s", c.g.Name, c.ops)
		}
		for _, w := range c.want {
			if !strings.Contains(l, w) {
				t.Errorf("%s: no constant %s", c.g.Name, w)
			}
		}
		seen := map[int64]bool{}
		for _, f := range append(append([]*DnnTensor(nil), c.g.Feeds...), c.g.Consts...) {
			if seen[f.UID] {
				t.Errorf("%s: id %d twice", c.g.Name, f.UID)
			}
			seen[f.UID] = true
		}
	}
}

// TestEnginesLeftOut: no engine that rounds its sums or its inputs is taken, and with Deterministic none
// whose sums vary.
func TestEnginesLeftOut(t *testing.T) {
	source, err := os.ReadFile("testdata/fake.c")
	must(t, err)
	c := Conv{Type: DnnHalf, Out: DnnHalf, X: []int64{1, 8, 4, 4}, W: []int64{8, 8, 1, 1}, Y: []int64{1, 8, 4, 4},
		Shape: ConvShape{Pads: []int64{0, 0}, EndPads: []int64{0, 0}, Strides: []int64{1, 1}, Dilations: []int64{1, 1}}}
	for note, left := range map[int]map[bool]bool{1: {true: true, false: true}, 2: {true: true, false: true}, 4: {true: true}, 5: {}} {
		so := compileC(t, "noted", strings.Replace(string(source), "*(int *)v = 0;", fmt.Sprintf("*(int *)v = %d;", note), 1))
		n, err := openDnn(openLibrary(libDNN, []string{so}), &library{})
		must(t, err)
		for _, deterministic := range []bool{false, true} {
			_, err := FirstPlan(n, c.Graph(), DnnOptions{Deterministic: deterministic, Workspace: 1 << 30})
			if errors.Is(err, ErrNotSupported) != left[deterministic] {
				t.Errorf("engines with note %d, deterministic %t: %v", note, deterministic, err)
			}
		}
	}
}
