package ir

// RNN runs x[S,B,I] through a plain recurrence, h = act(x·w + bias + h·r): w[I,D·H]
// and bias (nil: none) project the inputs, r[D,H,H] the state; D = 2 runs both
// ways; h0[D,B,H] starts it (nil: zeros). activation is "tanh" or "relu". It is
// written out step by step, so S must be known. It returns h of every step
// [S,B,D·H] and the last h [D,B,H]. Attribute: reverse.
func (b *Builder) RNN(x, w, r, bias, h0 *Value, activation string, a Attrs) (y, h *Value) {
	u := b.unnamed()
	act := map[string]func(*Value) *Value{"tanh": u.Tanh, "relu": u.Relu}[activation]
	if act == nil {
		b.Fail("rnn: activation is %q, want tanh or relu", activation)
		return nil, nil
	}
	xp := u.project(x, w, r, bias)
	if xp == nil {
		return nil, nil
	}
	d, reverse := xp.Type.Shape.Dims(), a.Get("reverse") == true
	steps, directions := int64(d[0]), int64(d[2])
	switch {
	case steps < 1 || directions < 1 || directions > 2 || directions == 2 && reverse:
		b.Fail("rnn: %s has type %s and r %s, want a known number of steps and one direction, or two without reverse", x, x.Type, r.Type)
		return nil, nil
	case r.Type.Shape.Dim(1) != r.Type.Shape.Dim(2):
		b.Fail("rnn: r has type %s, want [D,H,H]", r.Type)
		return nil, nil
	}
	ways, ends := make([]*Value, directions), make([]*Value, directions)
	for k := range directions {
		var h *Value
		if h0 != nil {
			h = u.Squeeze(u.sliceAxis(h0, 0, k, k+1), 0)
		}
		rk, all := u.Squeeze(u.sliceAxis(r, 0, k, k+1), 0), make([]*Value, steps)
		for i := range steps {
			t := i
			if k == 1 || reverse {
				t = steps - 1 - i
			}
			z := u.Squeeze(u.Slice(xp, []int64{0, 2}, []int64{t, k}, []int64{t + 1, k + 1}), 0, 2)
			if h != nil {
				z = u.Add(u.Matmul(h, rk, false, false), z)
			}
			h = act(z)
			all[t] = u.Unsqueeze(h, 0)
		}
		ways[k], ends[k] = u.joined(0, all), u.Unsqueeze(h, 0)
	}
	if h = u.joined(0, ends); directions == 1 {
		return ways[0], h
	}
	return b.Concat(2, ways...), h
}
