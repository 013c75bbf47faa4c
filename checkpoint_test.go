package ampc_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ampc"
	"ampc/internal/safetensors"
	"ampc/internal/trial"
)

// eventful is a model whose training uses everything a checkpoint must hold:
// dropout, micro-batches, EMA, a schedule, and a scale that moves.
func eventful(t *testing.T) (*ampc.Model, *ampc.Step) {
	t.Helper()
	m := ampc.New("eventful", ampc.Seed(11))
	x, y := m.Input("x", ampc.F32, 16, 4), m.Input("y", ampc.I32, 16)
	h := m.Dropout("drop", m.BatchNorm("bn", m.Linear("fc1", x, 16)), 0.3)
	loss := m.CrossEntropy(m.Linear("fc2", m.Relu(h), 3), y)
	s := ampc.Dynamic()
	s.Init, s.Every = 1<<20, 7
	return m, train(t, m, loss, ampc.TrainConfig{
		Optimizer: ampc.AdamW(0.1), LR: ampc.Cosine(1e-2, 5, 40), Clip: ampc.ClipNorm(1),
		Policy: ampc.MixedF16(), Scaler: s, EMA: 0.99, Micro: 2,
	})
}

// steps runs steps from to to; step 9 has an infinite input and is skipped.
func steps(t *testing.T, s *ampc.Step, from, to int) (skipped int) {
	t.Helper()
	for i := from; i < to; i++ {
		a, b := points(uint64(2*i), 16), points(uint64(2*i+1), 16)
		if i == 9 {
			a["x"].([]float32)[0] = float32(math.Inf(1))
		}
		if metrics(t, run(t, s, a, b)).Skipped {
			skipped++
		}
	}
	return skipped
}

func TestResumeIsBitExact(t *testing.T) {
	path := filepath.Join(t.TempDir(), "half.safetensors")
	whole, s := eventful(t)
	if n := steps(t, s, 0, 40); n == 0 {
		t.Error("no step was skipped: the test does not cover a skip")
	}
	half, s := eventful(t)
	steps(t, s, 0, 20)
	if good, err := half.Variable("amp.good"); err != nil || good.At(0) == 0 {
		t.Errorf("growth counter %v (%v) at the save, want one above zero", good, err)
	}
	if err := half.SetMeta("position", "20"); err != nil {
		t.Fatal(err)
	}
	if err := half.SaveFile(path); err != nil {
		t.Fatal(err)
	}
	rest, s := eventful(t)
	if err := rest.LoadFile(path); err != nil {
		t.Fatal(err)
	}
	if rest.Meta("position") != "20" || len(rest.Warnings()) != 0 {
		t.Errorf("position %q, warnings %q", rest.Meta("position"), rest.Warnings())
	}
	same(t, half, rest)
	steps(t, s, 20, 40)
	same(t, whole, rest)
}

func TestBadCheckpointsChangeNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "good.safetensors")
	m, s := eventful(t)
	steps(t, s, 0, 2)
	if err := m.SaveFile(path); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	other, loss := small(8)
	train(t, other, loss, adam())
	otherPath := filepath.Join(dir, "other.safetensors")
	if err := other.SaveFile(otherPath); err != nil {
		t.Fatal(err)
	}
	foreign, err := os.ReadFile(otherPath)
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(good)
	flipped[len(flipped)-5] ^= 1
	fresh, _ := eventful(t)
	twin, _ := eventful(t)
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"empty":     {nil, "truncated"},
		"truncated": {good[:len(good)/2], "truncated"},
		"flipped":   {flipped, "damaged"},
		"model":     {foreign, `holds model "small", this one is "eventful"`},
		"text":      {[]byte("this is not a checkpoint"), "not a safetensors file"},
	} {
		bad := filepath.Join(dir, name)
		trial.WriteFile(t, bad, string(c.data))
		wantError(t, fresh.LoadFile(bad), bad, c.want)
		same(t, fresh, twin)
	}
	wantError(t, fresh.LoadFile(filepath.Join(dir, "none")), "none: no such file")
	wantError(t, m.SaveFile(filepath.Join(dir, "no", "dir")), "no such file or directory")
	wantError(t, ampc.New("empty").SaveFile(path), "no step is compiled")
	wantError(t, ampc.New("empty").LoadFile(path), "no step is compiled yet")
}

// A loss scale that is not a power of two, or none at all, is not taken from a file nor from a caller.
func TestBadLossScales(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "good.safetensors")
	m, s := eventful(t)
	steps(t, s, 0, 2)
	if err := m.SaveFile(path); err != nil {
		t.Fatal(err)
	}
	fresh, _ := eventful(t)
	twin, _ := eventful(t)
	for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 0, 3, -2} {
		bad := filepath.Join(dir, "bad.safetensors")
		replaceTensor(t, path, bad, "amp.scale", binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(x))))
		wantError(t, fresh.LoadFile(bad), bad, fmt.Sprintf(`loss scale "amp.scale" is %g: want a power of two, finite and above 0`, x))
		wantError(t, fresh.SetVariable("amp.scale", []float32{float32(x)}), "amp.scale", "want a power of two")
		same(t, fresh, twin)
	}
	for _, x := range []float32{1, 0x1p-149, 0x1p127} {
		if err := fresh.SetVariable("amp.scale", []float32{x}); err != nil {
			t.Error(err)
		}
	}
}

// What a checkpoint could not give back is not taken.
func TestMetadataIsText(t *testing.T) {
	m, s := eventful(t)
	steps(t, s, 0, 1)
	for _, kv := range [][2]string{{"a\xff", "b"}, {"a", "\xffb"}} {
		wantError(t, m.SetMeta(kv[0], kv[1]), "not UTF-8")
	}
	if err := m.SetMeta("notes\n", "a\x00\tb"); err != nil {
		t.Error(err)
	}
	path := filepath.Join(t.TempDir(), "x")
	wantError(t, safetensors.WriteFile(path, map[string]string{"a\xff": ""}, nil), "not UTF-8")
	wantError(t, safetensors.WriteFile(path, nil, []safetensors.Tensor{{Name: "a\xff", DType: safetensors.F32, Write: safetensors.Bytes(make([]byte, 4))}}), "not UTF-8")
}

// A file's unused tensor cannot write to the terminal what it likes.
func TestNamesInFilesAreQuoted(t *testing.T) {
	dir := t.TempDir()
	good, more := filepath.Join(dir, "good"), filepath.Join(dir, "more")
	m, s := eventful(t)
	steps(t, s, 0, 1)
	if err := m.SaveFile(good); err != nil {
		t.Fatal(err)
	}
	addTensor(t, good, more, "\x1b]0;title\n")
	if err := m.LoadFile(more); err != nil {
		t.Fatal(err)
	}
	if w := m.Warnings(); len(w) != 1 || w[0] != `"\x1b]0;title\n": unused checkpoint entry` {
		t.Errorf("%q", w)
	}
}

// replaceTensor copies a file with other bytes in one tensor.
func replaceTensor(t *testing.T, from, to, name string, data []byte) {
	t.Helper()
	copyTensors(t, from, to, nil, map[string][]byte{name: data})
}

// addTensor copies a file with one number more.
func addTensor(t *testing.T, from, to, name string) {
	t.Helper()
	copyTensors(t, from, to, []safetensors.Tensor{{Name: name, DType: safetensors.F32, Write: safetensors.Bytes(make([]byte, 4))}}, nil)
}

func copyTensors(t *testing.T, from, to string, all []safetensors.Tensor, replaced map[string][]byte) {
	t.Helper()
	f, err := safetensors.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, x := range f.Tensors {
		b := make([]byte, x.Bytes())
		if err := f.Read(x.Name, b); err != nil {
			t.Fatal(err)
		}
		if data, ok := replaced[x.Name]; ok {
			b = data
		}
		all = append(all, safetensors.Tensor{Name: x.Name, DType: x.DType, Shape: x.Shape, Write: safetensors.Bytes(b)})
	}
	if err := safetensors.WriteFile(to, f.Meta, all); err != nil {
		t.Fatal(err)
	}
}

// A parameter of another shape is refused before anything is written.
func TestMismatchedParameter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "narrow.safetensors")
	build := func(width int) (*ampc.Model, *ampc.Step) {
		m := ampc.New("width")
		x := m.Input("x", ampc.F32, 2, 4)
		loss := m.ReduceMean(m.Square(m.Linear("fc", x, width)))
		return m, train(t, m, loss, adam())
	}
	narrow, _ := build(3)
	if err := narrow.SaveFile(path); err != nil {
		t.Fatal(err)
	}
	wide, _ := build(5)
	wantError(t, wide.LoadFile(path), path, "fc.", "the model wants f32")
}

// A checkpoint of one policy loads under another: parameters and moments go
// on, what the file lacks starts anew, and both are said.
func TestLoadingUnderAnotherPolicy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f32.safetensors")
	c := adam()
	c.Policy = ampc.F32Only()
	m, loss := small(8)
	s := train(t, m, loss, c)
	run(t, s, points(1, 8))
	big := make([]float32, 16*3)
	big[0], big[1] = 1e6, 1e-9
	if err := m.SetVariable("fc2.w", big); err != nil {
		t.Fatal(err)
	}
	if err := m.SaveFile(path); err != nil {
		t.Fatal(err)
	}
	mixed, loss := small(8)
	train(t, mixed, loss, adam())
	if err := mixed.LoadFile(path); err != nil {
		t.Fatal(err)
	}
	notes := strings.Join(mixed.Warnings(), "\n")
	for _, want := range []string{
		"saved under policy f32, loaded under mixed-f16",
		"amp.scale: missing from the file: starts at its initial value",
		"fc2.w: 1 of 48 weights overflow in f16 and 1 become zero",
	} {
		if !strings.Contains(notes, want) {
			t.Errorf("warnings %q do not say %q", notes, want)
		}
	}
	a, _ := m.Variable("amp.adam.m/fc1.w")
	b, err := mixed.Variable("amp.adam.m/fc1.w")
	if err != nil || !bytes.Equal(a.Bytes, b.Bytes) {
		t.Errorf("the moments were not taken over (%v)", err)
	}
}

// From training to inference there is nothing to warn of, whatever the policies.
func TestTrainingToInferenceWarnsOfNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mixed.safetensors")
	m, loss := small(8)
	train(t, m, loss, adam())
	if err := m.SaveFile(path); err != nil {
		t.Fatal(err)
	}
	for _, policy := range []ampc.Policy{{}, ampc.MixedF16(), ampc.MixedBF16()} {
		m, loss := small(8)
		defer m.Close()
		if _, err := m.Infer(ampc.InferConfig{Policy: policy}, loss); err != nil {
			t.Fatal(err)
		}
		if err := m.LoadFile(path, ampc.LeaveState()); err != nil || len(m.Warnings()) > 0 {
			t.Errorf("policy %q: %v, warnings %q", policy.Name, err, m.Warnings())
		}
	}
}

// A model that infers only has a policy too: a file that it wrote is loaded with a
// warning under another one.
func TestPolicyOfInferenceInWarnings(t *testing.T) {
	path := filepath.Join(t.TempDir(), "infer.safetensors")
	for i, policy := range []ampc.Policy{ampc.MixedF16(), {}, ampc.MixedF16()} {
		m, loss := small(8)
		defer m.Close()
		if _, err := m.Infer(ampc.InferConfig{Policy: policy}, loss); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			if err := m.SaveFile(path); err != nil {
				t.Fatal(err)
			}
		}
		if err := m.LoadFile(path); err != nil {
			t.Fatal(err)
		}
		want := ""
		if i == 1 {
			want = "saved under policy mixed-f16, loaded under f32"
		}
		if got := strings.Join(m.Warnings(), "\n"); got != want {
			t.Errorf("warnings %q, want %q", got, want)
		}
	}
}

// Evaluation over the running averages reads them and leaves the parameters alone.
func TestAveragesInPlaceOfParameters(t *testing.T) {
	m := ampc.New("average")
	x := m.Input("x", ampc.F32, 1)
	w := m.Param("w", ampc.Fill(1), 1)
	y := m.Named("y").Mul(w, x)
	loss := m.ReduceSum(y)
	c := ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(1), EMA: 0.5}
	s := train(t, m, loss, c)
	plain, err := m.Infer(ampc.InferConfig{}, y)
	if err != nil {
		t.Fatal(err)
	}
	averaged, err := m.Infer(ampc.InferConfig{Weights: ampc.EMA}, y)
	if err != nil {
		t.Fatal(err)
	}
	feed := ampc.Feed{"x": []float32{1}}
	for range 3 {
		run(t, s, feed)
	}
	a, err := run(t, plain, feed).Value(y)
	if err != nil {
		t.Fatal(err)
	}
	b, err := run(t, averaged, feed).Value(y)
	if err != nil {
		t.Fatal(err)
	}
	if a.At(0) != -2 || b.At(0) <= a.At(0) || b.At(0) >= 1 {
		t.Errorf("parameter %g, average %g", a.At(0), b.At(0))
	}
}

// oldModel is the model of testdata/checkpoints, which were written when the
// compiler's variables had names that users could take: format 1.
func oldModel() (*ampc.Model, ampc.Feed, [2]ampc.Tensor) {
	m := ampc.New("saved", ampc.Seed(5))
	x, y := m.Input("x", ampc.F32, 8, 4), m.Input("y", ampc.I32, 8)
	h := m.BatchNorm("bn", m.Linear("fc1", x, 6))
	h = m.Dropout("drop", m.Relu(h), 0.25)
	a := m.CrossEntropy(m.Linear("fc2", h, 3), y)
	b := m.Named("aux").ReduceMean(m.Square(m.Linear("aux1", h, 2)))
	xs, ys := make([]float32, 32), make([]int32, 8)
	for i := range xs {
		xs[i] = float32(i%7)/4 - 0.5
	}
	for i := range ys {
		ys[i] = int32(i % 3)
	}
	return m, ampc.Feed{"x": xs, "y": ys}, [2]ampc.Tensor{a, b}
}

func oldConfigs() (one, two ampc.TrainConfig) {
	one = ampc.TrainConfig{Policy: ampc.MixedF16(), EMA: 0.9, Optimizer: ampc.AdamW(0.1), LR: ampc.Cosine(0.1, 3, 20),
		Groups: []ampc.Group{{Pattern: "aux1", Freeze: true}, {Pattern: "fc2", Optimizer: ampc.AdamW(0.1), LR: ampc.Cosine(0.05, 2, 30)}}}
	two = ampc.TrainConfig{Name: "step2", Policy: ampc.MixedF16(), Optimizer: ampc.SGD(0.9), LR: ampc.StepDecay(0.01, 0.5, 2),
		Groups: []ampc.Group{{Pattern: "fc1", Freeze: true}, {Pattern: "bn", Freeze: true}, {Pattern: "fc2", Freeze: true}}}
	return one, two
}

// Checkpoints of format 1 load under the names of today, and training continues with
// the rates and scales that the program of then had, and with its losses except for
// the f16 roundings that the compiler chooses anew: a tenth of one such rounding.
func TestOldCheckpointsLoad(t *testing.T) {
	for file, steps := range map[string]int{"two-steps": 2, "infer-first": 1} {
		m, f, loss := oldModel()
		own := ampc.Dynamic()
		own.Init = 1024
		c, d := oldConfigs()
		compiled := []*ampc.Step{train(t, m, loss[0], c)}
		if steps == 2 {
			s, err := m.Train(d, ampc.Loss{Value: loss[1], Scaler: &own})
			if err != nil {
				t.Fatal(err)
			}
			compiled = append(compiled, s)
		}
		if err := m.LoadFile("testdata/checkpoints/" + file + ".safetensors"); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if w := m.Warnings(); len(w) != 0 {
			t.Errorf("%s: %q", file, w)
		}
		want := strings.Split(strings.TrimSuffix(m.Meta("next"), ";"), ";")
		if len(want) != len(compiled) {
			t.Fatalf("%s: holds %d results for %d steps", file, len(want), len(compiled))
		}
		for i, s := range compiled {
			got := metrics(t, run(t, s, f))
			var loss, rate, scale float64
			if _, err := fmt.Sscan(want[i], &loss, &rate, &scale); err != nil {
				t.Fatalf("%s: %q: %v", file, want[i], err)
			}
			if math.Abs(float64(got.Loss)-loss) > 1e-4*loss || float32(got.LR) != float32(rate) || got.Scale != scale {
				t.Errorf("%s: loss, rate and scale %g %g %g, want %s", file, got.Loss, got.LR, got.Scale, want[i])
			}
		}
		m.Close()
	}
}

// Training state without a home is an error, unless it is to be left.
func TestHomelessStateIsAnError(t *testing.T) {
	m, f, loss := oldModel()
	c, _ := oldConfigs()
	run(t, train(t, m, loss[0], c), f)
	path := filepath.Join(t.TempDir(), "a.safetensors")
	if err := m.SaveFile(path); err != nil {
		t.Fatal(err)
	}
	m.Close()
	for what, edit := range map[string]func(*ampc.TrainConfig){
		"another name":      func(c *ampc.TrainConfig) { c.Name = "other" },
		"another optimizer": func(c *ampc.TrainConfig) { c.Optimizer, c.Groups[1].Optimizer = ampc.SGD(0.9), ampc.SGD(0.9) },
		"no average":        func(c *ampc.TrainConfig) { c.EMA = 0 },
	} {
		for _, file := range []string{path, "testdata/checkpoints/infer-first.safetensors"} {
			if strings.HasPrefix(file, "testdata") && what == "another name" {
				continue
			}
			m, _, loss := oldModel()
			c, _ := oldConfigs()
			edit(&c)
			train(t, m, loss[0], c)
			before, _ := m.Variable("fc1.w")
			err := m.LoadFile(file)
			if err == nil || !strings.Contains(err.Error(), "holds training state that no compiled step has (") || !strings.Contains(err.Error(), "ampc.LeaveState()") {
				t.Errorf("%s, %s: %v", what, file, err)
			}
			if after, _ := m.Variable("fc1.w"); after.At(0) != before.At(0) {
				t.Errorf("%s: the refused file changed something", what)
			}
			if err := m.LoadFile(file, ampc.LeaveState()); err != nil || len(m.Warnings()) == 0 {
				t.Errorf("%s: %v, warnings %q", what, err, m.Warnings())
			}
			m.Close()
		}
	}
}

// A snapshot is the model as it was, whatever is trained before it is written.
func TestSnapshotStays(t *testing.T) {
	m, s := eventful(t)
	steps(t, s, 0, 5)
	if err := m.SetMeta("position", "5"); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	direct, late := filepath.Join(dir, "direct"), filepath.Join(dir, "late")
	if err := m.SaveFile(direct); err != nil {
		t.Fatal(err)
	}
	snap, err := m.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	steps(t, s, 5, 12)
	if err := m.SetMeta("position", "12"); err != nil {
		t.Fatal(err)
	}
	if err := snap.WriteFile(late); err != nil {
		t.Fatal(err)
	}
	a, _ := os.ReadFile(direct)
	b, _ := os.ReadFile(late)
	if len(a) == 0 || !bytes.Equal(a, b) {
		t.Error("a snapshot written later differs from the file of its moment")
	}
	if n := snap.Bytes(); n <= 0 || n >= int64(len(b)) {
		t.Errorf("%d bytes of tensors in a file of %d", n, len(b))
	}
	if name := snap.NotFinite(); name != "" {
		t.Errorf("%s is called not finite", name)
	}
	w, err := m.Variable("fc1.w")
	if err != nil {
		t.Fatal(err)
	}
	bad := make([]float32, w.Len())
	bad[w.Len()-1] = float32(math.Inf(-1))
	if err := m.SetVariable("fc1.w", bad); err != nil {
		t.Fatal(err)
	}
	if snap, err = m.Snapshot(); err != nil || snap.NotFinite() != "fc1.w" {
		t.Errorf("not finite: %q (%v), want fc1.w", snap.NotFinite(), err)
	}
}
