package cpu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"ampc/runtime"
)

// filled has the variables of a program filled on demand, with the bytes of data, and counts how often.
func filled(t *testing.T, s *store, data map[string][]byte, fail *error) map[string]int {
	t.Helper()
	times := map[string]int{}
	for name, b := range data {
		err := s.Fill(name, func(dst []byte) error {
			times[name]++
			copy(dst, b)
			return *fail
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return times
}

// What programs read packed ahead is not held as it lies, too: it is read once, packed, and given back, and read again
// where a step needs it unpacked.
func TestWeightsAreHeldOnce(t *testing.T) {
	const text = `graph @infer {
  input %x : f32[40,64]
  input %ids : i32[3]
  param %w1 : f32[64,512]
  param %w2 : f32[512,512]
  param %table : f32[400,64]
  param %k : f32[64,512,3,3]
  input %image : f32[1,512,12,12]
forward:
  %h = matmul %x, %w1 : f32[40,512]
  %r = relu %h : f32[40,512]
  %y = matmul %r, %w2 {tb} : f32[40,512]
  %rows = gather %table, %ids : f32[3,64]
  %c = conv %image, %k {pads=[1,1,1,1]} : f32[1,64,12,12]
  return %y, %rows, %c
}
`
	b := open(t, 2)
	p, _, _ := loaded(t, b, text)
	data := map[string][]byte{}
	for i := range p.Vars {
		if v := &p.Vars[i]; strings.HasPrefix(v.Name, "w") || v.Name == "table" || v.Name == "k" {
			data[v.Name] = make([]byte, v.Type.Bytes())
			for i, x := range slice[float32](data[v.Name]) {
				slice[float32](data[v.Name])[i] = x + float32(i%11) - 5
			}
		}
	}
	run := func(s *store) ([][]byte, runtime.Exec, error) {
		t.Helper()
		e, err := b.Load(p, s)
		if err != nil {
			return nil, nil, err
		}
		f := feedFor(p)
		for i := range slice[float32](f["x"].Data) {
			slice[float32](f["x"].Data)[i] = float32(i%5) - 2
		}
		r, err := e.Step(context.Background(), []runtime.Feed{f})
		if err != nil {
			return nil, e, err
		}
		var out [][]byte
		for i, o := range p.Outputs {
			out = append(out, make([]byte, o.Type.Bytes()))
			if err := r.Read(i, out[i]); err != nil {
				t.Fatal(err)
			}
		}
		return out, e, nil
	}
	newStore := func() *store {
		s, err := b.NewStore(p.Vars)
		if err != nil {
			t.Fatal(err)
		}
		return s.(*store)
	}
	written := newStore()
	for name, b := range data {
		if err := written.Write(name, b); err != nil {
			t.Fatal(err)
		}
	}
	want, _, err := run(written)
	if err != nil {
		t.Fatal(err)
	}
	var fail error
	s := newStore()
	times := filled(t, s, data, &fail)
	for range 2 {
		got, _, err := run(s)
		if err != nil {
			t.Fatal(err)
		}
		for i := range want {
			if !bytes.Equal(got[i], want[i]) {
				t.Errorf("result %d differs from that of variables that were written", i)
			}
		}
	}
	for name := range data {
		zero := len(bytes.Trim(s.vars[name].mem[8192:], "\x00")) < 8192 // except for parts of pages
		if times[name] != 1 || zero != (name != "table") {
			t.Errorf("%s was read %d times; its memory was given back: %t", name, times[name], zero)
		}
		got := make([]byte, len(data[name]))
		if err := s.Read(name, got); err != nil || !bytes.Equal(got, data[name]) {
			t.Errorf("%s reads as something else (%v)", name, err)
		}
	}
	if err := s.Write("w1", data["w1"]); err != nil {
		t.Fatal(err)
	}
	if got, _, err := run(s); err != nil || !bytes.Equal(got[0], want[0]) {
		t.Errorf("after a write: other results (%v)", err)
	}
	s, fail = newStore(), errors.New("the file was made shorter while it was read")
	filled(t, s, data, &fail)
	if _, _, err := run(s); err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), fail.Error()) {
		t.Errorf("weights that cannot be read: %v", err)
	}
	fail = nil
	if got, _, err := run(s); err != nil || !bytes.Equal(got[0], want[0]) || !bytes.Equal(got[1], want[1]) {
		t.Errorf("weights that can be read again: %v", err)
	}
}

// Whatever kernel a product or a convolution runs on, it has its weights: those that
// are read on demand give the bits of those that were written.
func TestEveryKernelHasItsWeights(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 1))
	pick := func(of ...int) int { return of[r.IntN(len(of))] }
	for i := range 120 {
		var text string
		if i%3 == 0 {
			m, n, k := pick(1, 2, 5, 17, 64), pick(64, 129, 512), pick(300, 512)
			y, form := fmt.Sprintf("%d,%d", k, n), ""
			if r.IntN(2) == 0 {
				y, form = fmt.Sprintf("%d,%d", n, k), " {tb}"
			}
			text = fmt.Sprintf("  input %%x : f32[%d,%d]\n  param %%w : f32[%s]\nforward:\n  %%y = matmul %%x, %%w%s : f32[%d,%d]\n", m, k, y, form, m, n)
		} else {
			text = randomConv(r, pick)
		}
		text = "graph @infer {\n" + text + "  return %y\n}\n"
		b := open(t, 1+r.IntN(2))
		p, _, _ := loaded(t, b, text)
		data := map[string][]byte{}
		for i := range p.Vars {
			if v := &p.Vars[i]; v.Name == "w" {
				data["w"] = make([]byte, v.Type.Bytes())
				for i := range slice[float32](data["w"]) {
					slice[float32](data["w"])[i] = float32(i%11) - 5
				}
			}
		}
		feed := feedFor(p)
		for i := range slice[float32](feed["x"].Data) {
			slice[float32](feed["x"].Data)[i] = float32(i%5) - 2
		}
		var results [2][]byte
		for k := range results {
			st, err := b.NewStore(p.Vars)
			if err != nil {
				t.Fatal(err)
			}
			var fail error
			if k == 0 {
				err = st.Write("w", data["w"])
			} else {
				filled(t, st.(*store), data, &fail)
			}
			if err != nil {
				t.Fatal(err)
			}
			e, err := b.Load(p, st)
			if err != nil {
				t.Fatal(err)
			}
			f, err := e.Step(context.Background(), []runtime.Feed{feed})
			if err != nil {
				t.Fatal(err)
			}
			results[k] = make([]byte, p.Outputs[0].Type.Bytes())
			if err := f.Read(0, results[k]); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(results[0], results[1]) {
			t.Errorf("other results with weights that are read on demand:\n%s", text)
		}
	}
}

// randomConv is a convolution of one to three dimensions whose weights have 64 KiB and more.
func randomConv(r *rand.Rand, pick func(of ...int) int) string {
	for {
		rank, groups := 1+r.IntN(3), pick(1, 1, 1, 2, 4)
		channels, filters := groups*pick(1, 3, 16, 64), groups*pick(4, 16, 64)
		count := filters * channels / groups
		var kernel, image, out, pads []string
		var back []string
		stride := pick(1, 1, 2)
		for range rank {
			k, n := pick(1, 3, 3, 5), pick(5, 8, 11)
			pad := r.IntN(k/2 + 1)
			count *= k
			kernel, image = append(kernel, fmt.Sprint(k)), append(image, fmt.Sprint(n))
			out = append(out, fmt.Sprint((n+2*pad-k)/stride+1))
			pads, back = append(pads, fmt.Sprint(pad)), append(back, fmt.Sprint(pad))
		}
		if count < 17<<10 || count > 1<<18 {
			continue
		}
		strides := strings.Join(slices.Repeat([]string{fmt.Sprint(stride)}, rank), ",")
		images := pick(1, 2)
		return fmt.Sprintf("  input %%x : f32[%d,%d,%s]\n  param %%w : f32[%d,%d,%s]\nforward:\n  %%y = conv %%x, %%w {groups=%d pads=[%s] strides=[%s]} : f32[%d,%d,%s]\n",
			images, channels, strings.Join(image, ","), filters, channels/groups, strings.Join(kernel, ","), groups, strings.Join(append(pads, back...), ","), strides, images, filters, strings.Join(out, ","))
	}
}
