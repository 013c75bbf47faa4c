package doctor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"ampc/ir"
	"ampc/runtime"
)

// confirm replays the step with the values in f32 that a remedy keeps there, and compares the
// results with f32, unless earlier replays bound the rounding. If they do not agree, the
// remedy also keeps all values that those are computed from; if that does not agree either,
// the remedy becomes the policy f32.
func (x *analysis) confirm(d *Diagnosis, v *ir.Value, bf16 bool) error {
	k := x.keeping
	if k == nil || d.Direction == Update {
		return nil
	}
	at := slices.IndexFunc(d.Remedies, func(r Remedy) bool { return len(r.Keep)+len(r.LeaveOut) > 0 })
	if x.bounded(d, bf16) && !x.underflows(d.Remedies[at].Keep) {
		return nil
	}
	right, err := x.rightResults(v)
	if err != nil || len(right) == 0 {
		return err
	}
	err = x.compareKept(d, v, at, bf16, right)
	if err != nil && x.ctx.Err() == nil { // a row does not run in the dtypes of the remedy
		d.Notes = append(d.Notes, "the values to keep were not compared with f32: "+err.Error())
		err = nil
	}
	return err
}

// compareKept is the part of confirm that replays the step with remedy number at.
func (x *analysis) compareKept(d *Diagnosis, v *ir.Value, at int, bf16 bool, right [][]byte) error {
	k := x.keeping
	if ok, err := x.agrees(d.Remedies[at], k.casts.Casts, right); ok || err != nil {
		return errors.Join(err, x.unstable(d, v, bf16, right))
	}
	k.upstream()
	d.Remedies[at] = *k.remedy()
	ok, err := x.agrees(d.Remedies[at], k.casts.Casts, right)
	if !ok && err == nil {
		d.Remedies = slices.Delete(d.Remedies, at, at+1)
		if !bf16 {
			d.Remedies = append(d.Remedies, Remedy{Policy: f32})
		}
	}
	return errors.Join(err, x.unstable(d, v, bf16, right))
}

// bounded reports whether an earlier replay that agrees with f32 rounds at least as coarsely as
// the step with a remedy: the one in bf16, or, if only gradients overflow, the one under the
// policy, of which the losses are compared.
func (x *analysis) bounded(d *Diagnosis, bf16 bool) bool {
	return bf16 || d.BF16 == nil && (d.Direction == Backward || d.Direction == Inner) && d.Cause != Singular && x.lossesAgree()
}

// lossesAgree compares the losses of the replay under the policy with those in f32.
func (x *analysis) lossesAgree() bool {
	if len(x.c.Feeds) > 1 || x.actual.streamed || len(x.losses) == 0 {
		return false
	}
	for i, v := range x.reference.results {
		if !isLoss(v) {
			continue
		}
		data := x.actual.data(v)
		if data == nil || !x.agree([]*ir.Value{v}, [][]byte{x.widened(v.Type.DType, data)}, x.losses[i:i+1]) {
			return false
		}
	}
	return true
}

// unstable adds a note if f32 does not agree with f32 after a change in the last bit of weights
// and inputs. It tests this only if results in bf16 are finite and differ.
func (x *analysis) unstable(d *Diagnosis, v *ir.Value, bf16 bool, right [][]byte) error {
	if bf16 || d.BF16 == nil || !d.BF16.Finite() {
		return nil
	}
	same, err := x.conditioned(v, right)
	if err == nil && !same {
		d.Notes = append(d.Notes, fmt.Sprintf("f32 does not hold this step either: where weights and inputs change in their last bit, its results become others; compute %s at a smaller magnitude", real(v).Name))
	}
	return err
}

// upstream also keeps all values that the kept ones are computed from.
func (k *keeping) upstream() {
	seen := map[*ir.Value]bool{}
	var walk func(v *ir.Value)
	walk = func(v *ir.Value) {
		if v == nil || v.Def == nil || seen[v] {
			return
		}
		seen[v] = true
		k.node(v)
		for _, op := range v.Def.In {
			walk(op)
		}
	}
	for _, v := range slices.Collect(maps.Keys(k.kept)) {
		walk(v)
	}
}

// tiny is a magnitude that f16 holds with an error of 1/512.
const tiny = 0x1p-16

// aside is the share of the largest gradient below which the underflow of a gradient does not count.
const aside = 0x1p-12

// underflows reports whether the largest magnitude of some value that patterns do not keep is
// below tiny in f16, at the loss scales that the remedy leads to.
func (x *analysis) underflows(patterns []string) bool {
	m := &mixed{patterns: patterns}
	low := func(v *ir.Value) bool { return v.Type.DType.Low() && !m.matched(v.Decider()) }
	scales, largest := x.fallen(low), 0.0
	for v, peak := range x.reference.peaks {
		if v.Unit != "" {
			largest = max(largest, peak)
		}
	}
	for v, peak := range x.reference.peaks {
		if v.Type.DType != ir.F16 || !low(v) || peak == 0 || v.Unit != "" && peak < aside*largest {
			continue
		}
		if peak*x.carried(v, scales) < tiny {
			return true
		}
	}
	return false
}

// fallen are the values to which dynamic scales will have fallen when every value that low selects
// fits.
func (x *analysis) fallen(low func(v *ir.Value) bool) map[string]float64 {
	scales := map[string]float64{}
	for _, s := range x.scales {
		at := x.actual.rangeOf(s).Max
		if rule := x.scaler(s); rule != nil {
			fits, _ := x.fitting(s, low)
			if fits > 0 {
				at = min(at, fits)
			}
			at = max(at, rule.Float("floor"))
		}
		scales[s.Name] = at
	}
	return scales
}

// agrees replays the step with a remedy and compares its results with those of f32.
func (x *analysis) agrees(r Remedy, left []ir.SourceCast, right [][]byte) (bool, error) {
	out, done, err := x.mixedResults(r.Keep, left)
	if err != nil {
		return false, err
	}
	defer done()
	return x.agree(x.results(), out, right), nil
}

// mixedResults are the results of the step with a remedy, without loss scales; done ends
// its replay.
func (x *analysis) mixedResults(patterns []string, left []ir.SourceCast) (out [][]byte, done func(), err error) {
	t, err := x.mixedVariant(patterns, left, x.c.memory())
	if err != nil {
		return nil, nil, err
	}
	scales := x.fallen(t.stores16)
	if out, done, err = x.resultsOf(t, x.c.Feeds, scales); err != nil {
		return nil, nil, err
	}
	for i, v := range t.results {
		if f := x.carried(v, scales); f != 1 {
			out[i] = x.times(out[i], 1/f)
		}
	}
	return out, done, nil
}

// resultsOf replays a variant, with loss scales of 1 where others are not given; done
// ends it.
func (x *analysis) resultsOf(t *variant, feeds []runtime.Feed, scales map[string]float64, changes ...func(state map[string][]byte)) (out [][]byte, done func(), err error) {
	r := &reference{to: t.to, results: t.results}
	r.replay, err = x.prepare(t.compiled, t.feeds(x.workers, feeds), func(converted map[string][]byte) map[string][]byte {
		state := t.state(x.workers, x.actual.state, converted, scales)
		for _, change := range changes {
			change(state)
		}
		return state
	})
	if err != nil {
		return nil, nil, err
	}
	x.replays++
	if out, err = r.compare(x, nil); err != nil {
		r.leave()
		return nil, nil, err
	}
	return out, r.leave, nil
}

// conditioned reports whether the results in f32 agree with those after a change in the last bit of
// weights and inputs.
func (x *analysis) conditioned(v *ir.Value, right [][]byte) (bool, error) {
	t, err := x.variantOf(kind{dtype: ir.F32, how: traced}, v)
	if err != nil {
		return false, err
	}
	var feeds []runtime.Feed
	for _, f := range x.c.Feeds {
		fed := maps.Clone(f)
		for name, y := range f {
			if y.Type.DType == ir.F32 {
				fed[name] = runtime.Tensor{Type: y.Type, Data: nudged(y.Data)}
			}
		}
		feeds = append(feeds, fed)
	}
	out, done, err := x.resultsOf(t, feeds, nil, func(state map[string][]byte) {
		for _, p := range t.from.Vars {
			if p.Kind == ir.Param && t.to[p].Type.DType == ir.F32 {
				state[p.Name] = nudged(state[p.Name])
			}
		}
	})
	if err != nil {
		return false, err
	}
	defer done()
	return x.agree(t.results, out, right), nil
}

// nudged are f32 numbers with another last bit.
func nudged(data []byte) []byte {
	out := slices.Clone(data)
	for i := 0; i+3 < len(out); i += 4 {
		binary.LittleEndian.PutUint32(out[i:], binary.LittleEndian.Uint32(out[i:])^1)
	}
	return out
}
