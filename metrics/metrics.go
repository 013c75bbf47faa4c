// Package metrics measures how good a model's answers are: accuracy, confusion,
// precision and recall, the area under the ROC curve, perplexity, weighted means.
//
// Add gives a metric one batch; its value may be read at any time and is NaN before
// the first batch. The zero value of a metric is ready for use and measures all batches
// since. Package fit computes metrics in evaluations.
package metrics

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Mean is a mean weighted by counts: of a loss by how many records or labels it is over.
type Mean struct{ sum, weight float64 }

// Add takes in a mean over weight things. A weight of 0 leaves it out, NaN or not.
func (m *Mean) Add(mean, weight float64) {
	if weight != 0 {
		m.sum += mean * weight
		m.weight += weight
	}
}

// Value is the mean of all things.
func (m *Mean) Value() float64 { return m.sum / m.weight }

// Weight is the sum of the weights.
func (m *Mean) Weight() float64 { return m.weight }

// Numbers are what m was given, in a form that Merge takes.
func (m *Mean) Numbers() []float64 { return []float64{m.sum, m.weight} }

// Merge takes in what another Mean was given, on another rank for example.
func (m *Mean) Merge(numbers []float64) {
	m.sum += numbers[0]
	m.weight += numbers[1]
}

// Perplexity is e to the mean negative log-likelihood of tokens.
type Perplexity struct{ Mean }

// Value is the perplexity of all tokens; Add takes their mean loss, in nats.
func (p *Perplexity) Value() float64 { return math.Exp(p.Mean.Value()) }

// TopK is the share of labels that are among the K largest scores. Of equal scores
// those of smaller classes are the larger ones, as for Argmax.
type TopK struct {
	K         int // 0: 1, which is accuracy
	right, of int
}

// Add takes scores[n,classes] and a label for each of the n rows. A label below 0 is
// left out.
func (t *TopK) Add(scores []float32, labels []int32) error {
	return rows(scores, labels, func(row []float32, label int) {
		score, above := row[label], 0
		for c, x := range row {
			if x > score || x == score && c < label || x != x {
				above++
			}
		}
		t.of++
		if above < max(t.K, 1) && score == score {
			t.right++
		}
	})
}

// Value is the share, from 0 to 1.
func (t *TopK) Value() float64 { return float64(t.right) / float64(t.of) }

// Numbers are what t was given, in a form that Merge takes.
func (t *TopK) Numbers() []float64 { return []float64{float64(t.right), float64(t.of)} }

// Merge takes in what another TopK with the same K was given.
func (t *TopK) Merge(numbers []float64) {
	t.right += int(numbers[0])
	t.of += int(numbers[1])
}

// rows calls f for each row of scores with a label from 0 on.
func rows(scores []float32, labels []int32, f func(row []float32, label int)) error {
	if len(labels) == 0 && len(scores) == 0 {
		return nil
	}
	if len(labels) == 0 || len(scores)%len(labels) != 0 || len(scores) == 0 {
		return fmt.Errorf("%d scores for %d labels: want a score per class for each label", len(scores), len(labels))
	}
	classes := len(scores) / len(labels)
	for i, label := range labels {
		if int(label) >= classes {
			return fmt.Errorf("label %d is %d of %d classes", i, label, classes)
		}
	}
	for i, label := range labels {
		if label >= 0 {
			f(scores[i*classes:(i+1)*classes], int(label))
		}
	}
	return nil
}

// Confusion counts labels by what they are and what was answered.
type Confusion struct {
	counts [][]int // [label][answer]
	total  int
}

// Add takes scores[n,classes] and a label for each of the n rows; the answer is the
// class of the largest score, the first of equal ones. A label below 0 is left out.
func (c *Confusion) Add(scores []float32, labels []int32) error {
	return rows(scores, labels, func(row []float32, label int) {
		best := 0
		for i, x := range row {
			if x > row[best] {
				best = i
			}
		}
		c.grow(len(row))
		c.counts[label][best]++
		c.total++
	})
}

// AddAnswers takes answers and labels as classes. A label below 0 is left out.
func (c *Confusion) AddAnswers(answers, labels []int32) error {
	if len(answers) != len(labels) {
		return fmt.Errorf("%d answers for %d labels", len(answers), len(labels))
	}
	for i, a := range answers {
		if a < 0 {
			return fmt.Errorf("answer %d is %d, want a class from 0 on", i, a)
		}
	}
	for i, label := range labels {
		if label >= 0 {
			c.grow(int(max(label, answers[i])) + 1)
			c.counts[label][answers[i]]++
			c.total++
		}
	}
	return nil
}

func (c *Confusion) grow(n int) {
	for i := range c.counts {
		for len(c.counts[i]) < n {
			c.counts[i] = append(c.counts[i], 0)
		}
	}
	for len(c.counts) < n {
		c.counts = append(c.counts, make([]int, n))
	}
}

// Counts is the matrix: Counts()[label][answer].
func (c *Confusion) Counts() [][]int {
	out := slices.Clone(c.counts)
	for i := range out {
		out[i] = slices.Clone(out[i])
	}
	return out
}

// Numbers are what c was given, in a form that Merge takes.
func (c *Confusion) Numbers() (out []float64) {
	for _, row := range c.counts {
		for _, n := range row {
			out = append(out, float64(n))
		}
	}
	return out
}

// Merge takes in what another Confusion was given.
func (c *Confusion) Merge(numbers []float64) {
	classes := int(math.Sqrt(float64(len(numbers))))
	c.grow(classes)
	for i, n := range numbers {
		c.counts[i/classes][i%classes] += int(n)
		c.total += int(n)
	}
}

// Accuracy is the share of right answers.
func (c *Confusion) Accuracy() float64 {
	right := 0
	for i := range c.counts {
		right += c.counts[i][i]
	}
	return float64(right) / float64(c.total)
}

// Scores are precision, recall and their harmonic mean.
type Scores struct{ Precision, Recall, F1 float64 }

// Class measures one class against all others. What has nothing to be divided by is 0,
// as in scikit-learn: the precision of a class that was never answered.
func (c *Confusion) Class(k int) Scores {
	if k < 0 || k >= len(c.counts) {
		return Scores{}
	}
	right, answered, there := c.counts[k][k], 0, 0
	for i := range c.counts {
		answered += c.counts[i][k]
		there += c.counts[k][i]
	}
	return Scores{share(right, answered), share(right, there), share(2*right, answered+there)}
}

func share(part, of int) float64 {
	if of == 0 {
		return 0
	}
	return float64(part) / float64(of)
}

// Macro is the mean over the classes that occur, as labels or as answers.
func (c *Confusion) Macro() Scores { return c.mean(func(int) float64 { return 1 }) }

// Weighted is the mean over classes weighted by how many labels are of each.
func (c *Confusion) Weighted() Scores {
	return c.mean(func(k int) float64 {
		n := 0
		for _, x := range c.counts[k] {
			n += x
		}
		return float64(n)
	})
}

// mean weights the classes that occur.
func (c *Confusion) mean(weight func(k int) float64) Scores {
	var s Scores
	sum := 0.0
	for k := range c.counts {
		occurs := false
		for i := range c.counts {
			occurs = occurs || c.counts[i][k] > 0 || c.counts[k][i] > 0
		}
		if !occurs {
			continue
		}
		w, x := weight(k), c.Class(k)
		s.Precision += w * x.Precision
		s.Recall += w * x.Recall
		s.F1 += w * x.F1
		sum += w
	}
	return Scores{s.Precision / sum, s.Recall / sum, s.F1 / sum}
}

// AUC is the area under the ROC curve of two classes: the chance that a positive scores
// above a negative, where equal scores count half. It keeps all scores.
type AUC struct{ positive, negative []float32 }

// Add takes a score and a label for each record: above 0 is positive, 0 negative, below
// 0 left out.
func (a *AUC) Add(scores []float32, labels []int32) error {
	if len(scores) != len(labels) {
		return fmt.Errorf("%d scores for %d labels", len(scores), len(labels))
	}
	for _, x := range scores {
		if x != x {
			return errors.New("a score is NaN")
		}
	}
	for i, label := range labels {
		switch {
		case label > 0:
			a.positive = append(a.positive, scores[i])
		case label == 0:
			a.negative = append(a.negative, scores[i])
		}
	}
	return nil
}

// Numbers are what a was given, in a form that Merge takes.
func (a *AUC) Numbers() []float64 {
	out := []float64{float64(len(a.positive))}
	for _, x := range slices.Concat(a.positive, a.negative) {
		out = append(out, float64(x))
	}
	return out
}

// Merge takes in what another AUC was given.
func (a *AUC) Merge(numbers []float64) {
	for i, x := range numbers[1:] {
		if i < int(numbers[0]) {
			a.positive = append(a.positive, float32(x))
		} else {
			a.negative = append(a.negative, float32(x))
		}
	}
}

// Value is the area; NaN while one of the classes is absent.
func (a *AUC) Value() float64 {
	slices.Sort(a.negative)
	sum := 0.0
	for _, x := range a.positive {
		below, _ := slices.BinarySearch(a.negative, x)
		upTo, _ := slices.BinarySearchFunc(a.negative, x, func(e, t float32) int {
			if e <= t {
				return -1
			}
			return 1
		})
		sum += float64(below+upTo) / 2
	}
	return sum / (float64(len(a.positive)) * float64(len(a.negative)))
}
