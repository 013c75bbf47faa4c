package dataset

import (
	"fmt"
	"math/rand/v2"
)

// Windows cuts batches of [Batch,Seq] token windows and their successors out
// of one long sequence.
type Windows struct {
	Tokens     []int32
	Batch, Seq int
	Seed       uint64
}

// Split divides tokens into a training part and a held-out tail of the given
// share, each long enough for one window.
func Split(tokens []int32, share float64, seq int) (train, held []int32, err error) {
	n := len(tokens) - int(share*float64(len(tokens)))
	if n <= seq || len(tokens)-n <= seq {
		return nil, nil, fmt.Errorf("%d tokens are too few to train and test on windows of %d", len(tokens), seq)
	}
	return tokens[:n], tokens[n:], nil
}

// Random returns batch number i: windows at positions drawn from the seed and i alone.
func (w Windows) Random(i int64) (ids, next []int32) {
	r := rand.New(rand.NewPCG(w.Seed, uint64(i)))
	return w.cut(func(int) int { return r.IntN(len(w.Tokens) - w.Seq) })
}

// Even returns batch number i of n whose windows lie evenly over the sequence,
// the same every time: for evaluation.
func (w Windows) Even(i, n int) (ids, next []int32) {
	last, steps := len(w.Tokens)-w.Seq-1, max(n*w.Batch-1, 1)
	return w.cut(func(b int) int { return last * (i*w.Batch + b) / steps })
}

func (w Windows) cut(start func(b int) int) (ids, next []int32) {
	ids, next = make([]int32, w.Batch*w.Seq), make([]int32, w.Batch*w.Seq)
	for b := range w.Batch {
		at := start(b)
		copy(ids[b*w.Seq:(b+1)*w.Seq], w.Tokens[at:])
		copy(next[b*w.Seq:(b+1)*w.Seq], w.Tokens[at+1:])
	}
	return ids, next
}
