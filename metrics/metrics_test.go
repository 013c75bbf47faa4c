package metrics_test

import (
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"ampc/metrics"
)

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-12 || math.IsNaN(got) != math.IsNaN(want) {
		t.Errorf("%s is %.15g, want %.15g", what, got, want)
	}
}

func TestMeans(t *testing.T) {
	var m metrics.Mean
	near(t, "the mean of nothing", m.Value(), math.NaN())
	m.Add(1, 10)
	m.Add(4, 5)
	m.Add(math.NaN(), 0)
	near(t, "mean", m.Value(), 2)
	near(t, "weight", m.Weight(), 15)
	var p metrics.Perplexity
	p.Add(math.Log(8), 3)
	p.Add(math.Log(2), 3)
	near(t, "perplexity", p.Value(), 4)
}

// scikit-learn's documentation of top_k_accuracy_score has this case.
func TestTopK(t *testing.T) {
	scores := []float32{0.5, 0.2, 0.2, 0.3, 0.4, 0.2, 0.2, 0.4, 0.3, 0.7, 0.2, 0.1}
	for k, want := range map[int]float64{0: 0.5, 1: 0.5, 2: 0.75, 3: 1} {
		m := metrics.TopK{K: k}
		if err := m.Add(scores, []int32{0, 1, 2, 2}); err != nil {
			t.Fatal(err)
		}
		near(t, "top k", m.Value(), want)
	}
	var m metrics.TopK
	nan := float32(math.NaN())
	if err := m.Add([]float32{nan, nan, 1, 0, 9, 9}, []int32{0, 0, -100}); err != nil {
		t.Fatal(err)
	}
	near(t, "with NaN and a label left out", m.Value(), 0.5)
	for _, bad := range []struct {
		scores []float32
		labels []int32
	}{{scores, []int32{0, 1, 2, 3}}, {scores[:5], []int32{0, 1}}, {nil, []int32{0}}, {scores, nil}} {
		if m.Add(bad.scores, bad.labels) == nil {
			t.Errorf("%d scores and labels %v are accepted", len(bad.scores), bad.labels)
		}
	}
}

// scikit-learn's documentation: y_true = [0,1,2,0,1,2], y_pred = [0,2,1,0,0,1] has
// macro precision 2/9, recall 1/3, F1 0.26666..., the same weighted.
func TestConfusion(t *testing.T) {
	var c metrics.Confusion
	if err := c.AddAnswers([]int32{0, 2, 1}, []int32{0, 1, 2}); err != nil {
		t.Fatal(err)
	}
	if err := c.Add([]float32{9, 0, 0, 9, 0, 0, 0, 9, 1, 1, 2, 3}, []int32{0, 1, 2, -1}); err != nil {
		t.Fatal(err)
	}
	if got := c.Counts(); !reflect.DeepEqual(got, [][]int{{2, 0, 0}, {1, 0, 1}, {0, 2, 0}}) {
		t.Errorf("counts %v", got)
	}
	near(t, "accuracy", c.Accuracy(), 1.0/3)
	for _, s := range []metrics.Scores{c.Macro(), c.Weighted()} {
		near(t, "precision", s.Precision, 2.0/9)
		near(t, "recall", s.Recall, 1.0/3)
		near(t, "F1", s.F1, 4.0/15)
	}
	if got := c.Class(0); got != (metrics.Scores{Precision: 2.0 / 3, Recall: 1, F1: 0.8}) {
		t.Errorf("class 0: %v", got)
	}
	if got := c.Class(1); got != (metrics.Scores{}) {
		t.Errorf("class 1: %v", got)
	}
	// Unbalanced: labels 0,0,0,1, answers 0,0,1,1; classes 2 to 4 do not occur.
	var u metrics.Confusion
	if err := u.Add([]float32{9, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 9, 0, 0, 0}, []int32{0, 0, 0, 1}); err != nil {
		t.Fatal(err)
	}
	near(t, "macro precision", u.Macro().Precision, 0.75)
	near(t, "weighted precision", u.Weighted().Precision, 0.875)
	near(t, "macro F1", u.Macro().F1, (0.8+2.0/3)/2)
	near(t, "weighted recall", u.Weighted().Recall, 0.75)
	if c.AddAnswers([]int32{-1}, []int32{0}) == nil || c.AddAnswers([]int32{1}, nil) == nil {
		t.Error("answers that fit nothing are accepted")
	}
}

// roc_auc_score([0,0,1,1], [0.1,0.4,0.35,0.8]) is 0.75; then against counted pairs.
func TestAUC(t *testing.T) {
	var a metrics.AUC
	near(t, "of nothing", a.Value(), math.NaN())
	if err := a.Add([]float32{0.1, 0.4, 0.35, 0.8, 7}, []int32{0, 0, 1, 1, -1}); err != nil {
		t.Fatal(err)
	}
	near(t, "AUC", a.Value(), 0.75)
	r := rand.New(rand.NewPCG(1, 2))
	scores, labels := make([]float32, 300), make([]int32, 300)
	for i := range scores {
		scores[i], labels[i] = float32(r.IntN(20)), int32(r.IntN(2))
	}
	var b metrics.AUC
	for i := 0; i < 300; i += 50 {
		if err := b.Add(scores[i:i+50], labels[i:i+50]); err != nil {
			t.Fatal(err)
		}
		b.Value() // asked in between
	}
	won, pairs := 0.0, 0.0
	for i, x := range scores {
		for j, y := range scores {
			if labels[i] == 1 && labels[j] == 0 {
				pairs++
				switch {
				case x > y:
					won++
				case x == y:
					won += 0.5
				}
			}
		}
	}
	near(t, "AUC with ties", b.Value(), won/pairs)
	if a.Add([]float32{float32(math.NaN())}, []int32{1}) == nil || a.Add([]float32{1}, nil) == nil {
		t.Error("a NaN or a missing label is accepted")
	}
}
