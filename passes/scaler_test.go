package passes

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"ampc/ir"
	"ampc/ir/eval"
)

// reference is a scaler of another system, written from its published rule.
// It keeps its own notion of state and is asked for the scale only.
type reference interface {
	update(overflow bool)
	get() float64
}

// torchRef: a growth tracker; a growth that is not finite is not taken.
type torchRef struct {
	scale    float32
	tracker  int
	interval int
}

func (r *torchRef) get() float64 { return float64(r.scale) }
func (r *torchRef) update(overflow bool) {
	if overflow {
		r.scale *= 0.5
		r.tracker = 0
		return
	}
	r.tracker++
	if r.tracker == r.interval {
		if grown := r.scale * 2; !math.IsInf(float64(grown), 0) {
			r.scale = grown
		}
		r.tracker = 0
	}
}

// apexRef: no floor unless one is set, ceiling 2^24.
type apexRef struct {
	scale     float64
	unskipped int
	window    int
}

func (r *apexRef) get() float64 { return r.scale }
func (r *apexRef) update(overflow bool) {
	if overflow {
		r.scale /= 2
		r.unskipped = 0
	} else {
		r.unskipped++
	}
	if r.unskipped == r.window {
		r.scale = math.Min(1<<24, r.scale*2)
		r.unskipped = 0
	}
}

// deepSpeedRef counts iterations since the last overflow and tolerates the
// first of its shift; a growth renews the tolerance.
type deepSpeedRef struct {
	scale              float64
	iter, last         int
	window, shift, cur int
	consecutive        bool
}

func (r *deepSpeedRef) get() float64 { return r.scale }
func (r *deepSpeedRef) update(overflow bool) {
	switch {
	case overflow && (r.shift == 1 || r.cur == 1):
		r.scale = math.Max(r.scale/2, 1)
		r.last = r.iter
	case overflow:
		r.cur--
		r.last = r.iter
	default:
		if r.consecutive {
			r.cur = r.shift
		}
		if (r.iter-r.last)%r.window == 0 {
			if !r.consecutive {
				r.cur = r.shift
			}
			r.scale *= 2
		}
	}
	r.iter++
}

// oneFlowRef: floor 1, ceiling the largest float.
type oneFlowRef struct {
	scale  float32
	good   int
	period int
}

func (r *oneFlowRef) get() float64 { return float64(r.scale) }
func (r *oneFlowRef) update(overflow bool) {
	if overflow {
		r.good = 0
		r.scale = float32(math.Max(float64(r.scale)/2, 1))
		return
	}
	r.good++
	if r.good >= r.period {
		r.scale = float32(math.Min(float64(r.scale)*2, math.MaxFloat32))
		r.good = 0
	}
}

// ampcRef is the state machine of the design, one branch per line.
type ampcRef struct {
	s                     Scaler
	scale                 float64
	good, left, run, hits int
}

func (r *ampcRef) step(found, fwd bool) {
	switch {
	case fwd:
		r.good = 0
		r.run++
	case found:
		r.good, r.run = 0, 0
		r.left--
		if r.left == 0 {
			r.left = int(r.s.Hysteresis)
			if r.scale == r.s.Floor {
				r.hits++
			}
			r.scale = math.Max(r.s.Floor, r.scale*r.s.Backoff)
		}
	default:
		r.good++
		r.run = 0
		if r.good == int(r.s.Every) {
			r.good, r.left = 0, int(r.s.Hysteresis)
			r.scale = math.Min(r.s.Cap, r.scale*r.s.Growth)
		}
	}
}

// scalerUnderTest drives the update_scale node of a compiled step.
type scalerUnderTest struct {
	t     *testing.T
	node  *ir.Node
	state []*eval.Tensor
}

func newScaler(t *testing.T, s Scaler) *scalerUnderTest {
	t.Helper()
	g, _, err := compileStep(pairText, Config{Training: Training{Groups: oneGroup(SGD(0), Constant(0.1)), Scaler: s}})
	if err != nil {
		t.Fatal(err)
	}
	u := &scalerUnderTest{t: t}
	for _, n := range g.Body[ir.Update] {
		if n.Op == ir.OpUpdateScale {
			u.node = n
		}
	}
	if u.node == nil {
		t.Fatal("no update_scale in the update")
	}
	for _, v := range u.node.In[:5] {
		x, err := eval.InitVar(v, 0)
		if err != nil {
			t.Fatal(err)
		}
		u.state = append(u.state, x)
	}
	return u
}

func flag(b bool) *eval.Tensor {
	if b {
		return eval.Ints(ir.Bool, nil, 1)
	}
	return eval.Ints(ir.Bool, nil, 0)
}

func (u *scalerUnderTest) step(found, fwd bool) {
	u.t.Helper()
	in := append(append([]*eval.Tensor{}, u.state...), flag(found))
	if len(u.node.In) > 6 && u.node.In[6] != nil {
		in = append(in, flag(fwd))
	}
	out, err := eval.Node(u.node, in, eval.Options{})
	if err != nil {
		u.t.Fatal(err)
	}
	u.state = out
}

// restore passes the state through its bytes, as a checkpoint does.
func (u *scalerUnderTest) restore() {
	u.t.Helper()
	for i, x := range u.state {
		y, err := eval.FromBytes(x.Type, x.Bytes())
		if err != nil {
			u.t.Fatal(err)
		}
		u.state[i] = y
	}
}

// overflows is a sequence with runs of overflows and of clean steps.
func overflows(seed uint64, n int) []bool {
	r := rand.New(rand.NewPCG(seed, 1))
	s := make([]bool, 0, n)
	for len(s) < n {
		bad := r.IntN(3) == 0
		for range 1 + r.IntN(12) {
			s = append(s, bad && r.IntN(2) == 0)
		}
	}
	return s[:n]
}

func TestScalersFollowTheSystemsTheyName(t *testing.T) {
	for _, c := range []struct {
		name   string
		scaler Scaler
		ref    func() reference
	}{
		{"torch", TorchScaler(), func() reference { return &torchRef{scale: 65536, interval: 5} }},
		{"apex", apexScaler(), func() reference { return &apexRef{scale: 65536, window: 5} }},
		{"deepspeed", DeepSpeedScaler(), func() reference {
			return &deepSpeedRef{scale: 65536, last: -1, window: 5, shift: 2, cur: 2}
		}},
		{"deepspeed consecutive", renewed(DeepSpeedScaler()), func() reference {
			return &deepSpeedRef{scale: 65536, last: -1, window: 5, shift: 2, cur: 2, consecutive: true}
		}},
		{"oneflow", oneFlowScaler(), func() reference { return &oneFlowRef{scale: 65536, period: 5} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.scaler.Every = 5
			for seed := range uint64(20) {
				u, ref := newScaler(t, c.scaler), c.ref()
				for i, bad := range overflows(seed, 300) {
					u.step(bad, false)
					ref.update(bad)
					if i == 137 {
						u.restore()
					}
					if got := u.state[0].F[0]; got != ref.get() {
						t.Fatalf("seed %d, step %d: scale %g, %s has %g", seed, i, got, c.name, ref.get())
					}
				}
			}
		})
	}
}

func renewed(s Scaler) Scaler { s.Renew = true; return s }

// The bounds of the systems, at which they differ.
func TestScalersAtTheirBounds(t *testing.T) {
	for _, c := range []struct {
		name     string
		scaler   Scaler
		low, top float64
	}{
		{"torch", TorchScaler(), 0x1p-149, 0x1p127},
		{"apex", apexScaler(), 0x1p-149, 1 << 24},
		{"deepspeed", DeepSpeedScaler(), 1, 0x1p127},
		{"oneflow", oneFlowScaler(), 1, math.MaxFloat32},
		{"ampc", Dynamic(), 1, 1 << 24},
	} {
		c.scaler.Every = 1
		u := newScaler(t, c.scaler)
		for range 165 {
			u.step(true, false)
		}
		if got := u.state[0].F[0]; got != c.low {
			t.Errorf("%s: after endless overflow the scale is %g, want %g", c.name, got, c.low)
		}
		for range 300 {
			u.step(false, false)
		}
		if got := u.state[0].F[0]; got != c.top {
			t.Errorf("%s: after endless growth the scale is %g, want %g", c.name, got, c.top)
		}
	}
}

func TestOwnScalerFollowsTheDesign(t *testing.T) {
	for _, hysteresis := range []int64{1, 3} {
		s := Dynamic()
		s.Every, s.Hysteresis, s.Cap, s.Floor, s.Init = 4, hysteresis, 1<<10, 1, 16
		for seed := range uint64(20) {
			u := newScaler(t, s)
			ref := &ampcRef{s: s, scale: 16, left: int(hysteresis)}
			r := rand.New(rand.NewPCG(seed, 2))
			for i, bad := range overflows(seed, 400) {
				fwd := r.IntN(9) == 0
				u.step(bad, fwd)
				ref.step(bad, fwd)
				if i%97 == 96 {
					u.restore()
				}
				got := [5]float64{u.state[0].F[0]}
				for k := range 4 {
					got[k+1] = float64(u.state[k+1].I[0])
				}
				want := [5]float64{ref.scale, float64(ref.good), float64(ref.left), float64(ref.run), float64(ref.hits)}
				if got != want {
					t.Fatalf("hysteresis %d, seed %d, step %d: state %v, the design has %v", hysteresis, seed, i, got, want)
				}
			}
		}
	}
}

func TestScalerRefusals(t *testing.T) {
	bad := func(f func(*Scaler)) Scaler { s := Dynamic(); f(&s); return s }
	for _, c := range []struct {
		scaler Scaler
		want   string
	}{
		{bad(func(s *Scaler) { s.Init = 1000 }), "initial scale 1000 is not a power of two, so scaling would round: use 512 or 1024"},
		{bad(func(s *Scaler) { s.Growth = 3 }), "growth 3 is not a power of two"},
		{bad(func(s *Scaler) { s.Growth = 0.5 }), "want growth above 1 and backoff below"},
		{bad(func(s *Scaler) { s.Init, s.Cap = 1<<20, 1<<10 }), "initial scale 1.048576e+06 is outside 1 to 1024"},
		{Static(0), "static scale 0: want a power of two"},
		{Static(math.Inf(1)), "static scale +Inf: want a power of two"},
		{Static(12), "static scale 12 is not a power of two, so scaling would round: use 8 or 16"},
	} {
		_, _, err := compileStep(pairText, Config{Training: Training{Groups: oneGroup(SGD(0), Constant(0.1)), Scaler: c.scaler}})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.scaler, err, c.want)
		}
	}
}

// The default follows the policy.
func TestAutomaticScaler(t *testing.T) {
	own := MixedF16()
	own.Scaler = Static(8)
	mine := MixedF16()
	mine.Scaler = apexScaler()
	s := Scaler{Init: 1 << 20, Every: 50}.under(mine).filled()
	if want := apexScaler(); s.Init != 1<<20 || s.Every != 50 || s.Mode != DynamicScale || s.Cap != want.Cap || !s.BlameForward || !s.NoFloor {
		t.Errorf("a start and a window over the policy's Apex rule: %+v", s)
	}
	for _, c := range []struct {
		policy Policy
		want   ScalerMode
	}{{Policy{}, NoScale}, {MixedF16(), DynamicScale}, {MixedBF16(), NoScale}, {own, StaticScale}} {
		g, _, err := compileStep(pairText, Config{Training: Training{Groups: oneGroup(SGD(0), Constant(0.1))}, Policy: c.policy})
		if err != nil {
			t.Fatal(err)
		}
		got := NoScale
		if g.Var("amp.scale") != nil {
			got = StaticScale
		}
		if g.Var("amp.good") != nil {
			got = DynamicScale
		}
		if got != c.want {
			t.Errorf("policy %s: scaler %s, want %s", c.policy.Name, got, c.want)
		}
	}
}

func TestScalerPresetsHaveNames(t *testing.T) {
	for _, name := range []string{"none", "dynamic", "torch", "apex", "deepspeed", "oneflow", "keras"} {
		s, ok := ScalerNamed(name)
		if !ok {
			t.Errorf("no scaler %s", name)
		}
		if err := s.filled().check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, ok := ScalerNamed("apax"); ok {
		t.Error("a misspelt scaler was found")
	}
}
