package data

import (
	"errors"
	"fmt"
	"reflect"
)

// share is the part of each batch that a rank has: its rows, one after the other, as rank 0's come first.
type share struct{ rank, ranks, batch int } // batch: of all ranks together

// Share is a loader of the same batches that hands out one rank's rows of each, and reads no others. Its
// Options.Batch is the number of those rows. It stands where l stands, and its State is one of l, so a run
// continues on another number of ranks. The ranks have equally many rows: with Last Short, the last batch
// must be divisible among them, too; with Pad a rank may get padding alone.
func (l *Loader) Share(rank, ranks int) (*Loader, error) {
	o := l.o
	switch {
	case rank < 0 || rank >= ranks:
		return nil, fmt.Errorf("loader: rank %d of %d ranks", rank, ranks)
	case o.Ranks > 1 || l.share.ranks > 1:
		return nil, fmt.Errorf("loader: it has the part of one of %d ranks already", max(o.Ranks, l.share.ranks))
	case ranks == 1:
	case o.OnBad != nil:
		return nil, errors.New("loader: Options.OnBad is set for several ranks, which would leave out different records")
	case o.Batch%ranks != 0:
		return nil, fmt.Errorf("loader: a batch of %d records is not divisible among %d ranks: set Options.Batch to %d", o.Batch, ranks, (o.Batch/ranks+1)*ranks)
	case o.Last == Short && l.set.Len()%o.Batch%ranks != 0:
		return nil, fmt.Errorf("loader: the last batch has %d records, which %d ranks cannot share equally: set Options.Last to Pad or Drop", l.set.Len()%o.Batch, ranks)
	}
	own := *l
	own.waited, own.share = 0, share{rank, ranks, o.Batch}
	own.o.Batch /= ranks
	return &own, nil
}

// place is where the records of an epoch are made into batches.
type place struct {
	at, end  int // in the records of this rank
	batch    int // of this rank
	from     int // of the first batch, in the records of all ranks
	all      int // records of all ranks
	padded   bool
	template int // a record of the last batch, for a rank that has none
}

// after is the position behind the batch that ends at p, short or not, in the records of all ranks.
func (p place) after(s share, short bool) int {
	switch {
	case s.ranks <= 1:
		return p.at
	case short: // the last one
		return p.all
	}
	return min(p.from+p.at/p.batch*s.batch, p.all)
}

// own lists this rank's records of an epoch from a position on.
func (s share) own(order []int, from int, last Last) ([]int, place) {
	var own []int
	p := place{batch: s.batch / s.ranks, from: from, all: len(order)}
	for at := from; at < len(order); at += s.batch {
		rows := order[at:min(at+s.batch, len(order))]
		each := p.batch
		if len(rows) < s.batch {
			if last == Drop {
				break
			}
			if last == Short {
				each = len(rows) / s.ranks
			}
			p.padded, p.template = last == Pad && s.rank*each >= len(rows), rows[0]
		}
		own = append(own, rows[min(s.rank*each, len(rows)):min((s.rank+1)*each, len(rows))]...)
	}
	p.end = len(own)
	return own, p
}

// padding is a batch without records, with the fields of one.
func (l *Loader) padding(epoch, template int) (map[string]any, error) {
	e, err := l.at(epoch, template)
	if err != nil {
		return nil, err
	}
	n := l.o.Batch
	feed, err := collate([]Example{e}, n+1, l.o.Pad)
	for name, v := range feed {
		x := reflect.ValueOf(v)
		feed[name] = x.Slice(x.Len()/(n+1), x.Len()).Interface()
	}
	if err == nil && l.o.Mask != "" {
		feed[l.o.Mask] = make([]float32, n)
	}
	return feed, err
}
