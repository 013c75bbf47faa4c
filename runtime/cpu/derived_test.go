package cpu

import (
	"bytes"
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"ampc/ir"
	"ampc/lower"
	"ampc/runtime"
)

// foldedConv is a convolution of SIZE images whose weights prepare computes from variables. PREPARE
// is prepare or forward, which computes the same in every step.
const foldedConv = `graph @folded {
  input %x : f32[SIZE,8,12,12]
  param %w : f32[16,8,3,3]
  param %scale : f32[16]
  param %bias : f32[16]
PREPARE:
  %g = reshape %scale {shape=[16,1,1,1]} : f32[16,1,1,1]
  %u = mul %w, %g {out=DTYPE} : DTYPE[16,8,3,3]
  %s = mul %bias, %scale {out=DTYPE} : DTYPE[16]
FORWARD
  %v = cast %x {to=DTYPE} : DTYPE[SIZE,8,12,12]
  %y = conv %v, %u, %s {out=f32 pads=[1,1,1,1]} : f32[SIZE,16,12,12]
  return %y
}
`

func foldedText(dtype, size string, kept bool) string {
	text, head := strings.NewReplacer("SIZE", size, "DTYPE", dtype).Replace(foldedConv), [2]string{"forward", ""}
	if kept {
		head = [2]string{"prepare", "forward:"}
	}
	if dtype == "f32" {
		text = strings.NewReplacer("  %v = cast %x {to=f32} : f32["+size+",8,12,12]\n", "", "conv %v", "conv %x", "{out=f32}", "", "out=f32 ", "").Replace(text)
	}
	return strings.NewReplacer("PREPARE", head[0], "FORWARD", head[1]).Replace(text)
}

// What prepare derives from variables is computed once, shared by the programs of a store, and
// computed again after each write of one of its variables.
func TestDerivedValuesFollowWrites(t *testing.T) {
	b := open(t, 2)
	for _, dtype := range []string{"f32", "bf16"} {
		p, s, e := loaded(t, b, foldedText(dtype, "2", true))
		if len(p.Derived) != 2 {
			t.Fatalf("%s: %d derived values, want 2:\n%s", dtype, len(p.Derived), p)
		}
		st := s.(*store)
		feed, r := feedFor(p), rand.New(rand.NewPCG(1, 2))
		fillRandom(r, feed["x"].Data)
		result := func(e runtime.Exec) []byte {
			t.Helper()
			f, err := e.Step(context.Background(), []runtime.Feed{feed})
			if err != nil {
				t.Fatal(err)
			}
			out := make([]byte, p.Outputs[0].Type.Bytes())
			if err := f.Read(0, out); err != nil {
				t.Fatal(err)
			}
			return out
		}
		again, err := b.Load(programOf(t, foldedText(dtype, "2", false)), s)
		if err != nil {
			t.Fatal(err)
		}
		var last []byte // not the zeros that the variables begin with
		for _, name := range []string{"w", "scale", "bias", "w"} {
			data := make([]byte, len(st.vars[name].mem))
			fillRandom(r, data)
			if err := s.Write(name, data); err != nil {
				t.Fatal(err)
			}
			got := result(e)
			if !bytes.Equal(got, result(again)) {
				t.Errorf("%s: after a write of %s the result is not that of the variables", dtype, name)
			}
			if name == "w" && bytes.Equal(got, last) {
				t.Errorf("%s: a write of %s changes nothing", dtype, name)
			}
			last = got
			if !bytes.Equal(got, result(e)) {
				t.Errorf("%s: a second step gives other bits", dtype)
			}
		}
		if _, err := b.Load(programOf(t, foldedText(dtype, "3", true)), s); err != nil {
			t.Fatal(err)
		}
		if len(st.made) != 2 {
			t.Errorf("%s: two programs hold %d derived values, want 2", dtype, len(st.made))
		}
		if err := s.Drop("scale"); err != nil {
			t.Fatal(err)
		}
		if len(st.made) != 0 {
			t.Errorf("%s: %d derived values of a dropped variable are left", dtype, len(st.made))
		}
	}
}

// Steps that run at the same time compute a stale value once, and read it when it is whole.
func TestDerivedValuesOfConcurrentSteps(t *testing.T) {
	b := open(t, 4)
	p, s, e := loaded(t, b, foldedText("f32", "2", true))
	r := rand.New(rand.NewPCG(1, 2))
	for _, v := range p.Vars {
		if v.Kind == ir.Param {
			data := make([]byte, v.Type.Bytes())
			fillRandom(r, data)
			if err := s.Write(v.Name, data); err != nil {
				t.Fatal(err)
			}
		}
	}
	feed := feedFor(p)
	fillRandom(r, feed["x"].Data)
	var results [8][]byte
	var wg sync.WaitGroup
	for i := range results {
		wg.Go(func() {
			f, err := e.Step(context.Background(), []runtime.Feed{feed})
			if err != nil {
				t.Error(err)
				return
			}
			results[i] = make([]byte, p.Outputs[0].Type.Bytes())
			if err := f.Read(0, results[i]); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for i, got := range results {
		if !bytes.Equal(got, results[0]) {
			t.Errorf("step %d gives other bits than step 0", i)
		}
	}
}

func fillRandom(r *rand.Rand, data []byte) {
	for i := range slice[float32](data) {
		slice[float32](data)[i] = float32(r.NormFloat64())
	}
}

func programOf(t *testing.T, text string) *lower.Program {
	t.Helper()
	g, err := ir.Parse("t.ir", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	p, err := lower.Lower(g, lower.CPU)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
