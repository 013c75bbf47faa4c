package fit

import (
	"context"
	"errors"
	"fmt"

	"ampc"
	"ampc/data"
	"ampc/metrics"
)

// Metric measures an evaluation. Its tensors must be results of Evaluation.Step.
type Metric interface {
	Name() string
	Reset()
	Add(r *ampc.Result, b data.Batch) error
	Value() float64
}

// Merging is a Metric that ranks measure together: each is given some of the batches, and takes in the
// Numbers of all ranks in their order after a Reset. The metrics of this package are. If one of an
// Evaluation is not, each rank evaluates all batches.
type Merging interface {
	Metric
	Numbers() []float64
	Merge(numbers []float64)
}

// Mean is the mean of a scalar tensor, such as a loss, over batches, weighted by their
// records.
func Mean(name string, x ampc.Tensor) Metric {
	return &mean{name: name, x: x}
}

// WeightedMean is the mean of a scalar tensor over batches, weighted by another one:
// the number of tokens that a loss is the mean of.
func WeightedMean(name string, x, weight ampc.Tensor) Metric {
	return &mean{name: name, x: x, weight: &weight}
}

// Perplexity is e to the mean of a loss, which is that of a language model in nats.
// weight is the number of tokens of a batch; the zero Tensor: batches count by their
// records.
func Perplexity(name string, loss, weight ampc.Tensor) Metric {
	p := &perplexity{mean{name: name, x: loss}}
	if !weight.Absent() {
		p.weight = &weight
	}
	return p
}

type mean struct {
	name   string
	x      ampc.Tensor
	weight *ampc.Tensor
	metrics.Mean
}

// Name is the name given at creation.
func (m *mean) Name() string { return m.name }

// Reset discards all batches.
func (m *mean) Reset() { m.Mean = metrics.Mean{} }

// Add adds a batch.
func (m *mean) Add(r *ampc.Result, b data.Batch) error {
	x, err := number(r, m.x)
	weight := float64(b.Count)
	if err == nil && m.weight != nil {
		weight, err = number(r, *m.weight)
	}
	if err == nil {
		m.Mean.Add(x, weight)
	}
	return err
}

// number returns the value of a scalar.
func number(r *ampc.Result, t ampc.Tensor) (float64, error) {
	h, err := r.Value(t)
	if err != nil {
		return 0, err
	}
	if h.Len() != 1 {
		return 0, fmt.Errorf("%s has %d elements, want a scalar", h.Type, h.Len())
	}
	return h.At(0), nil
}

type perplexity struct{ mean }

// Value is the perplexity.
func (p *perplexity) Value() float64 {
	return (&metrics.Perplexity{Mean: p.Mean}).Value()
}

// classified is a metric over scores[n,classes] and the labels in a field of the batch.
type classified struct {
	name   string
	scores ampc.Tensor
	labels string
	of     func() measured // may be another one after reset
	add    func(scores []float32, labels []int32) error
	value  func() float64
	reset  func()
}

// measured is what package metrics measures with.
type measured interface {
	Numbers() []float64
	Merge(numbers []float64)
}

// Numbers are what the metric was given.
func (c *classified) Numbers() []float64 { return c.of().Numbers() }

// Merge takes in what another rank's metric was given.
func (c *classified) Merge(numbers []float64) { c.of().Merge(numbers) }

// Name is the name given at creation.
func (c *classified) Name() string { return c.name }

// Reset discards all batches.
func (c *classified) Reset() { c.reset() }

// Value returns the metric over all batches.
func (c *classified) Value() float64 { return c.value() }

// Add adds a batch.
func (c *classified) Add(r *ampc.Result, b data.Batch) error {
	h, err := r.Value(c.scores)
	if err != nil {
		return err
	}
	labels, err := integers(b.Feed[c.labels])
	if err != nil {
		return fmt.Errorf("field %q: %w", c.labels, err)
	}
	scores := h.Floats()
	if b.Size > 0 { // without the padding at the end of the batch
		scores, labels = scores[:len(scores)/b.Size*b.Count], labels[:len(labels)/b.Size*b.Count]
	}
	return c.add(scores, labels)
}

// integers returns labels in the form that metrics take.
func integers(v any) ([]int32, error) {
	switch v := v.(type) {
	case []int32:
		return v, nil
	case []int64:
		return narrowed(v), nil
	case []int:
		return narrowed(v), nil
	case []uint8:
		return narrowed(v), nil
	case []float32:
		return narrowed(v), nil
	}
	return nil, fmt.Errorf("is a %T, want labels", v)
}

func narrowed[T int64 | int | uint8 | float32](v []T) []int32 {
	out := make([]int32, len(v))
	for i, x := range v {
		out[i] = int32(x)
	}
	return out
}

// Accuracy is the share of records whose label, an integer in that field of the batch,
// has the largest score; labels below 0 are left out. scores is [...,classes].
func Accuracy(name string, scores ampc.Tensor, labels string) Metric {
	return TopK(name, 1, scores, labels)
}

// TopK is the share of records whose label is among the k largest scores.
func TopK(name string, k int, scores ampc.Tensor, labels string) Metric {
	t := &metrics.TopK{K: k}
	return &classified{name, scores, labels, func() measured { return t }, func(s []float32, l []int32) error { return t.Add(s, l) },
		func() float64 { return t.Value() }, func() { t = &metrics.TopK{K: k} }}
}

// Confused is a number of the confusion matrix: (*metrics.Confusion).Accuracy, or a
// function of yours that returns c.Macro().F1.
func Confused(name string, scores ampc.Tensor, labels string, value func(c *metrics.Confusion) float64) Metric {
	var c metrics.Confusion
	return &classified{name, scores, labels, func() measured { return &c }, func(s []float32, l []int32) error { return c.Add(s, l) },
		func() float64 { return value(&c) }, func() { c = metrics.Confusion{} }}
}

// F1 is the mean over classes of the harmonic mean of precision and recall.
func F1(name string, scores ampc.Tensor, labels string) Metric {
	return Confused(name, scores, labels, func(c *metrics.Confusion) float64 { return c.Macro().F1 })
}

// AUC is the area under the ROC curve of scores[n] and labels that are 0 or above.
func AUC(name string, scores ampc.Tensor, labels string) Metric {
	var a metrics.AUC
	return &classified{name, scores, labels, func() measured { return &a }, func(s []float32, l []int32) error { return a.Add(s, l) },
		func() float64 { return a.Value() }, func() { a = metrics.AUC{} }}
}

// Evaluation measures a model on data that it is not trained on.
type Evaluation struct {
	Step *ampc.Step   // from Step.Eval or Model.Infer, with all tensors that Metrics read
	Data *data.Loader // one epoch of it, from its beginning, without shuffling
	// Metrics are what is measured; the first is what Run watches where Run.Watch is "".
	Metrics []Metric
}

// Evaluate runs one epoch and returns the metrics by name. size is the dimension that
// a short batch changes, "" where there is none.
func (e *Evaluation) Evaluate(ctx context.Context, size ampc.Dim) (map[string]float64, error) {
	return e.evaluate(ctx, size, ranks{})
}

// evaluate is Evaluate on several ranks, each of which runs every so many of the batches.
func (e *Evaluation) evaluate(ctx context.Context, size ampc.Dim, w ranks) (map[string]float64, error) {
	if e.Step == nil || e.Data == nil || len(e.Metrics) == 0 {
		return nil, errors.New("evaluation: want a Step, Data and Metrics")
	}
	begin := e.Data.State()
	begin.Epoch, begin.Position = 0, 0
	if err := e.Data.Restore(begin); err != nil {
		return nil, fmt.Errorf("evaluation: %w", err)
	}
	for _, m := range e.Metrics {
		m.Reset()
	}
	if err := w.agree(ctx, e.batches(w.context(ctx), size, w.dividing(e.Metrics))); err != nil {
		return nil, fmt.Errorf("evaluation: %w", err)
	}
	if err := w.merge(e.Metrics); err != nil {
		return nil, fmt.Errorf("evaluation: %w", err)
	}
	out := map[string]float64{}
	for _, m := range e.Metrics {
		out[m.Name()] = m.Value()
	}
	return out, nil
}

// batches runs this rank's batches. All ranks run the first one, because a step of sharded variables
// gathers them then.
func (e *Evaluation) batches(ctx context.Context, size ampc.Dim, w ranks) error {
	i := 0
	for b, err := range e.Data.Epoch(ctx) {
		if err != nil {
			return err
		}
		own := i%w.size() == w.rank()
		if own || i == 0 {
			if err := e.batch(ctx, b, size, own); err != nil {
				return err
			}
		}
		i++
	}
	return nil
}

func (e *Evaluation) batch(ctx context.Context, b data.Batch, size ampc.Dim, measure bool) error {
	step, err := sized(e.Step, e.Data, b.Size, size)
	if err != nil {
		return err
	}
	r, err := step.Run(ctx, b.Feed)
	if err != nil {
		return err
	}
	defer r.Release()
	if !measure {
		_, err := r.Wait(ctx)
		return err
	}
	for _, m := range e.Metrics {
		if err := m.Add(r, b); err != nil {
			return fmt.Errorf("metric %q: %w", m.Name(), err)
		}
	}
	return nil
}

// sized returns the step for the batch's size.
func sized(s *ampc.Step, l *data.Loader, n int, size ampc.Dim) (*ampc.Step, error) {
	if size == "" {
		if full := l.Options().Batch; n != full {
			return nil, fmt.Errorf("a batch has %d records, the others %d: set Run.BatchDim to the named dimension of the batch, or the loader's Options.Last to Pad or Drop", n, full)
		}
		return s, nil
	}
	return s.For(ampc.Sizes{size: int64(n)})
}
