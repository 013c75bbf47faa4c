package ampc_test

import (
	"strings"
	"testing"

	"ampc"
	"ampc/lower"
	"ampc/lower/sm"
)

// remembering is a model that attends to what its caches hold, and has an output beside.
func remembering() (m *ampc.Model, y, beside ampc.Tensor) {
	m = ampc.New("remembering")
	x, pos := m.Input("x", ampc.F32, 1, 2, 1, 16), m.Input("pos", ampc.I32, 1)
	k := m.CacheAppend(m.Cache("k", ampc.BF16, 1, 2, 4, 16), x, pos, ampc.Tensor{})
	v := m.CacheAppend(m.Cache("v", ampc.BF16, 1, 2, 4, 16), m.Relu(x), pos, ampc.Tensor{})
	return m, m.CachedAttention(x, k, v, pos), m.Exp(x)
}

// What is wrong with a cache is one line.
func TestCacheMistakes(t *testing.T) {
	m, y, beside := remembering()
	defer m.Close()
	step, err := m.Infer(ampc.InferConfig{}, y)
	if err != nil {
		t.Fatal(err)
	}
	cache, err := m.NewCache()
	if err != nil || cache.Bytes() != 2*2*2*4*16 {
		t.Fatal(err, cache.Bytes())
	}
	other, _, _ := remembering()
	foreign, err := other.NewCache()
	if err != nil {
		t.Fatal(err)
	}
	x := make([]float32, 32)
	for _, c := range []struct {
		feed ampc.Feed
		want string
	}{
		{ampc.Feed{"x": x, "pos": 0}, `no memory for the cache "k" bf16[1,2,4,16]`},
		{ampc.Feed{"x": x, "pos": 4, "cache": cache}, "cache_append %k: sequence 0: 1 rows of 1 at position 4 of a cache of 4"},
		{ampc.Feed{"x": x, "pos": -1, "cache": cache}, "at position -1 of a cache of 4"},
		{ampc.Feed{"x": x, "pos": 0, "cache": foreign}, `feed "cache" is not a cache of this model: make it with Model.NewCache`},
		{ampc.Feed{"x": x, "pos": 0, "cache": cache, "more": cache}, "is the second cache of the call"},
		{ampc.Feed{"x": cache, "pos": 0}, `feed "x"`},
	} {
		if _, err := step.Run(t.Context(), c.feed); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
	if _, err := step.Run(t.Context(), ampc.Feed{"x": x, "pos": 0, "cache": cache}); err != nil {
		t.Error(err)
	}
	if _, err := step.Diagnose(t.Context()); err == nil || !strings.Contains(err.Error(), "a replay does not have") {
		t.Error(err)
	}
	if _, err := m.Infer(ampc.InferConfig{}, beside); err != nil {
		t.Error(err)
	} else if s, _ := m.Infer(ampc.InferConfig{}, beside); s != nil {
		if _, err := s.Run(t.Context(), ampc.Feed{"x": x}); err != nil {
			t.Errorf("a step that reads no cache: %v", err)
		}
	}
	if _, err := m.Train(ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(0.1)}, ampc.Loss{Value: m.ReduceMean(m.Mul(y, m.Param("w", ampc.Fill(1), 16)))}); err != nil {
		t.Errorf("training what comes after the caches: %v", err)
	}
	p := ampc.New("none")
	if _, err := p.NewCache(); err == nil {
		t.Error("a model without caches has memory for them")
	}
	if k := p.CacheAppend(p.Input("x", ampc.F32, 1, 2, 4, 16), p.Lookup("x"), p.Input("pos", ampc.I32, 1), ampc.Tensor{}); k.IR() != nil || !strings.Contains(p.Err().Error(), "%x is not a cache: declare one with Model.Cache") {
		t.Error(p.Err())
	}
}

// The appended cache alone may be read: a step that would have to copy it is refused.
func TestCacheReadAfterAppend(t *testing.T) {
	m := ampc.New("stale")
	x, pos := m.Input("x", ampc.F32, 1, 2, 1, 16), m.Input("pos", ampc.I32, 1)
	k := m.Cache("k", ampc.F32, 1, 2, 4, 16)
	after := m.CacheAppend(k, x, pos, ampc.Tensor{})
	_, err := m.Infer(ampc.InferConfig{}, m.CachedAttention(m.CachedAttention(x, after, after, pos), k, k, pos))
	if err == nil || !strings.Contains(err.Error(), "k cannot be written in place, because it is read afterwards: read the result of cache_append instead") {
		t.Error(err)
	}
}

// A GPU has no caches and says so.
func TestCacheOnGPU(t *testing.T) {
	m, _, _ := remembering()
	if err := lower.Check(m.Graph(), sm.Must("sm_90")); err == nil || !strings.Contains(err.Error(), "cache_append: sm_90 has no caches of sequences: generate on the CPU") {
		t.Error(err)
	}
}
