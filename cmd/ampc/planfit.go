package main

import "ampc/models"

// batchSearch looks for the largest batch whose bytes stay within a limit.
type batchSearch struct {
	limit  int64
	lo, hi int64    // the largest batch that fits, and the smallest that does not, of those tried
	x, y   [2]int64 // the last two tried and their bytes
	slow   bool     // the last one has told little
}

// fitBatch finds the largest batch, from or more, whose bytes stay within limit. Memory grows with
// the batch, about in proportion to what is added: few batches need to be compiled. The result is at
// most models.MaxOption.
func fitBatch(from, limit int64, bytes func(batch int64) (int64, error)) (int64, error) {
	s := batchSearch{limit: limit, lo: from, hi: models.MaxOption + 1}
	for batch := max(2*from, 1); s.lo+1 < s.hi; batch = s.next() {
		batch = min(batch, s.hi-1)
		n, err := bytes(batch)
		if err != nil {
			return 0, err
		}
		s.tried(batch, n)
	}
	return s.lo, nil
}

// tried notes the bytes of a batch.
func (s *batchSearch) tried(batch, bytes int64) {
	lo, hi := s.lo, s.hi
	if bytes <= s.limit {
		s.lo = batch
	} else {
		s.hi = batch
	}
	s.x, s.y = [2]int64{s.x[1], batch}, [2]int64{s.y[1], bytes}
	s.slow = s.lo < 2*lo
	if s.hi <= models.MaxOption {
		s.slow = s.hi-s.lo > (hi-lo)/2
	}
}

// next is the batch to try: what the limit allows if bytes grow as between the last two that were
// tried, or the middle where that has led nowhere.
func (s *batchSearch) next() int64 {
	if s.slow {
		return min(2*s.lo, (s.lo+s.hi)/2)
	}
	guess := 2 * s.lo
	if slope := float64(s.y[1]-s.y[0]) / float64(s.x[1]-s.x[0]); slope > 0 {
		guess = s.x[1] + int64(min(float64(s.limit-s.y[1])/slope, models.MaxOption))
	}
	return max(min(guess, 16*s.lo, s.hi-1), s.lo+1)
}
