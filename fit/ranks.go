package fit

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc64"
	"math"
	"strings"

	"ampc/data"
	"ampc/ir"
	"ampc/world"
)

// ranks are the processes that make a run together; the zero ranks are one process. All make the same
// decisions, because they decide by what all of them have.
type ranks struct{ world.World }

func (w ranks) several() bool { return w.World != nil && w.Size() > 1 }

func (w ranks) rank() int {
	if !w.several() {
		return 0
	}
	return w.Rank()
}

func (w ranks) size() int {
	if !w.several() {
		return 1
	}
	return w.Size()
}

// context is what a rank's own work gets: ranks end together, at the next call of agree.
func (w ranks) context(ctx context.Context) context.Context {
	if w.several() {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

// errEnded says that the context of some rank has ended.
var errEnded = errors.New("the context has ended")

// What a rank says to the others. The largest counts.
const (
	goesOn byte = iota
	stops
	ended
	failed
)

// agree makes ErrStop, the end of ctx or an error of one rank that of all.
func (w ranks) agree(ctx context.Context, err error) error {
	if !w.several() {
		return err
	}
	own := make([]byte, 256)
	switch {
	case errors.Is(err, ErrStop):
		own[0] = stops
	case err != nil && !errors.Is(err, errEnded):
		own[0] = failed
		copy(own[1:], err.Error())
	case ctx.Err() != nil:
		own[0] = ended
		copy(own[1:], context.Cause(ctx).Error())
	}
	all, lost := w.gather("fit", own)
	if lost != nil {
		return errors.Join(err, lost)
	}
	first := 0
	for r := range all {
		if all[r][0] > all[first][0] {
			first = r
		}
	}
	said := strings.TrimRight(string(all[first][1:]), "\x00")
	switch all[first][0] {
	case goesOn:
		return nil
	case stops:
		return ErrStop
	case ended:
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %w", errEnded, context.Cause(ctx))
		}
		return fmt.Errorf("%w on rank %d: %s", errEnded, first, said)
	}
	if own[0] == failed {
		return err
	}
	return fmt.Errorf("rank %d: %s", first, said)
}

// gather returns what all ranks have, as many bytes on each.
func (w ranks) gather(name string, own []byte) ([][]byte, error) {
	all := make([]byte, len(own)*w.Size())
	m := &world.Message{Name: name, Op: world.Gather, DType: ir.U8, Wire: ir.F32, In: [][]byte{own}, Out: [][]byte{all}}
	if err := w.Start(m); err != nil {
		return nil, err
	}
	if err := w.Wait(context.Background(), m); err != nil {
		return nil, err
	}
	parts := make([][]byte, w.Size())
	for r := range parts {
		parts[r] = all[r*len(own) : (r+1)*len(own)]
	}
	return parts, nil
}

// same is an error where ranks have different settings.
func (w ranks) same(settings string) error {
	if !w.several() {
		return nil
	}
	all, err := w.gather("settings of fit", binary.LittleEndian.AppendUint64(nil, crc64.Checksum([]byte(settings), crc64.MakeTable(crc64.ECMA))))
	if err != nil {
		return err
	}
	for r := range all {
		if string(all[r]) != string(all[0]) {
			return fmt.Errorf("rank %d makes another run than rank 0: give all ranks the same Run, with loaders of the same set, batch and seed", r)
		}
	}
	return nil
}

// dividing are the ranks that share the batches of an evaluation: one process where a metric does not
// merge.
func (w ranks) dividing(metrics []Metric) ranks {
	for _, m := range metrics {
		if _, ok := m.(Merging); !ok {
			return ranks{}
		}
	}
	return w
}

// merge makes each metric take in what it was given on all ranks, in their order.
func (w ranks) merge(metrics []Metric) error {
	if !w.dividing(metrics).several() {
		return nil
	}
	for _, m := range metrics {
		own := []byte{}
		for _, x := range m.(Merging).Numbers() {
			own = binary.LittleEndian.AppendUint64(own, math.Float64bits(x))
		}
		sizes, err := w.gather("size of metric "+m.Name(), binary.LittleEndian.AppendUint64(nil, uint64(len(own))))
		if err != nil {
			return err
		}
		most := 0
		for _, n := range sizes {
			most = max(most, int(binary.LittleEndian.Uint64(n)))
		}
		if most == 0 {
			continue
		}
		all, err := w.gather("metric "+m.Name(), append(own, make([]byte, most-len(own))...))
		if err != nil {
			return err
		}
		m.Reset()
		for r, part := range all {
			var numbers []float64
			for part = part[:binary.LittleEndian.Uint64(sizes[r])]; len(part) > 0; part = part[8:] {
				numbers = append(numbers, math.Float64frombits(binary.LittleEndian.Uint64(part)))
			}
			if len(numbers) > 0 {
				m.(Merging).Merge(numbers)
			}
		}
	}
	return nil
}

// shared is the loader of this rank's rows. One that was made for this rank stays as it is.
func (w ranks) shared(l *data.Loader) (*data.Loader, error) {
	o := l.Options()
	if !w.several() || o.Ranks == w.Size() && o.Rank == w.Rank() {
		return l, nil
	}
	return l.Share(w.Rank(), w.Size())
}
