package main

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ampc"
	"ampc/data"
	"ampc/internal/file"
	"ampc/ir"
)

// fileTask is a model file with the data to train it on. The fields of a record have the names of
// the model's inputs.
func fileTask(c *cobra.Command, spec string, f *trainFlags) (task, error) {
	switch {
	case len(f.text) > 0:
		return task{}, usagef("%s: --text is for zoo models: give records with --data", spec)
	case len(f.data) == 0:
		return task{}, usagef("%s: give records to train it on with --data", spec)
	case f.group != nil:
		return task{}, usagef("%s: a model file trains in one process", spec)
	}
	o, err := open(c, spec)
	if err != nil {
		return task{}, err
	}
	o.targets = true
	t := task{spec: absolute(spec)[0], unit: "records", steps: 1000, meta: map[string]string{}}
	if err := o.forTraining(f, &t); err != nil {
		return task{}, err
	}
	inputs, batch, err := o.feedInputs()
	if err != nil {
		return task{}, err
	}
	train, held, err := readRecords(inputs, f)
	if err != nil {
		return task{}, err
	}
	if t.digest, err = digestOf(train); err != nil {
		return task{}, err
	}
	t.model, t.name, t.losses, t.config, t.unitsPerBatch = o.model, filepath.Base(spec), o.losses, o.config, batch
	t.source = fmt.Sprintf("%s: %d records, %d held out", strings.Join(f.data, ", "), train.Len(), held.Len())
	source := &batches{set: train, options: data.Options{Batch: batch, Shuffle: true, Seed: uint64(f.seed), Last: data.Drop}}
	t.batch, t.epoch = source.feed, int64(train.Len()/batch)
	if held.Len() < batch {
		return task{}, fmt.Errorf("%s: %d records are held out, fewer than a batch of %d: give more with --held-out", strings.Join(f.data, ", "), held.Len(), batch)
	}
	t.heldOut = func(ctx context.Context, eval *ampc.Step) (float64, float64, error) {
		whole := &batches{set: held, options: data.Options{Batch: batch, Last: data.Drop}}
		return mean(ctx, eval, t.losses[0].Value, t.correct, held.Len()/batch, func(i int) (ampc.Feed, int, error) {
			b, err := whole.at(int64(i))
			return b.Feed, batch, err
		})
	}
	return t, source.check()
}

// forTraining applies the flags for losses, optimizer and sizes to the model.
func (o *openedModel) forTraining(f *trainFlags, t *task) (err error) {
	if !o.sized {
		if o.config.Sizes, err = parseDims(f.dims); err != nil {
			return err
		}
	}
	if err := o.train(f.losses, f.optimizer); err != nil {
		return err
	}
	if len(o.losses) == 0 {
		return usagef("%s: names no loss: give --loss VALUE, ce:LOGITS,LABELS or mse:VALUE,TARGET", o.spec)
	}
	if logits, labels := o.classes[0], o.classes[1]; !logits.Absent() { // ce:LOGITS,LABELS says which answer is correct
		m := o.model
		answer := m.Cast(m.Argmax(logits, -1), labels.DType())
		t.correct = m.ReduceSum(m.Cast(m.Eq(answer, labels), ampc.F32))
	}
	return o.bound()
}

// feedInputs lists the inputs and their common first dimension, which is the batch size.
func (o *openedModel) feedInputs() (inputs []input, batch int, err error) {
	g := o.model.Graph()
	for _, v := range g.Vars {
		if v.Kind != ir.Input || strings.HasPrefix(v.Name, ir.Reserved) {
			continue
		}
		var dims []int
		for _, d := range v.Type.Shape.Dims() {
			if d < 0 {
				d = ir.Dim(o.config.Sizes[ampc.Dim(g.Syms[-d-1].Name)])
			}
			dims = append(dims, int(d))
		}
		if len(dims) == 0 || batch != 0 && dims[0] != batch {
			return nil, 0, fmt.Errorf("%s: input %s is %s: want inputs whose first dimension is the batch, %d", o.spec, v.Name, g.TypeString(v.Type), batch)
		}
		in := input{name: v.Name, float: v.Type.DType.Float(), width: 1}
		for _, d := range dims[1:] {
			in.width *= d
		}
		batch, inputs = dims[0], append(inputs, in)
	}
	if len(inputs) == 0 {
		return nil, 0, fmt.Errorf("%s: has no input to feed", o.spec)
	}
	return inputs, batch, nil
}

// input is the field of a record for an input of the model.
type input struct {
	name  string
	float bool
	width int // number of elements in a record
}

// readRecords reads the records to train and to evaluate on. Without --held-out every tenth record
// is held out.
func readRecords(inputs []input, f *trainFlags) (train, held data.Set, err error) {
	if len(f.data) != 1 {
		return nil, nil, usagef("--data takes one file")
	}
	if train, err = readRecordFile(inputs, f.data[0]); err != nil {
		return nil, nil, err
	}
	if f.heldOut != "" {
		held, err = readRecordFile(inputs, f.heldOut)
		return train, held, err
	}
	train, held = data.Every(train, 10)
	return train, held, nil
}

// readRecordFile reads a file whose format follows from its name or content.
func readRecordFile(inputs []input, path string) (data.Set, error) {
	var set data.Set
	var err error
	switch base := strings.TrimSuffix(path, ".gz"); {
	case strings.HasSuffix(base, ".npz") || strings.HasSuffix(base, ".npy"):
		set, err = nilSet(data.NumPy(path))
	case strings.HasSuffix(base, ".jsonl"):
		o := data.LineOptions{}
		for _, in := range inputs {
			if o.Fields = append(o.Fields, in.name); !in.float {
				o.Ints = append(o.Ints, in.name)
			}
		}
		set, err = data.JSONLines(path, o)
	default:
		set, err = readTable(inputs, path)
	}
	if err != nil {
		return nil, err
	}
	if set.Len() == 0 {
		return nil, fmt.Errorf("%s: no records", path)
	}
	first, err := set.At(0, nil)
	if err != nil {
		return nil, err
	}
	for _, in := range inputs {
		v, there := first[in.name]
		if !there {
			return nil, fmt.Errorf("%s: no field %q, which the model reads: there are %q", path, in.name, slices.Sorted(maps.Keys(first)))
		}
		if n := fields(v); n != in.width {
			return nil, fmt.Errorf("%s: field %q has %d numbers in a record, the model wants %d", path, in.name, n, in.width)
		}
	}
	return data.Map(set, func(e data.Example, _ *rand.Rand) (data.Example, error) {
		out := data.Example{}
		for _, in := range inputs {
			out[in.name] = e[in.name]
			if b, bytes := e[in.name].([]uint8); bytes && in.float { // scales pixels to 0..1
				x := make([]float32, len(b))
				for i, p := range b {
					x[i] = float32(p) / 255
				}
				out[in.name] = x
			}
		}
		return out, nil
	}), nil
}

// nilSet converts a nil table to a nil interface.
func nilSet(c *data.Columns, err error) (data.Set, error) {
	if err != nil {
		return nil, err
	}
	return c, nil
}

// readTable reads CSV or IDX for a model with two inputs: numbers and a label.
func readTable(inputs []input, path string) (data.Set, error) {
	if len(inputs) != 2 {
		return nil, fmt.Errorf("%s: CSV and IDX are for models of two inputs, this one has %d: give arrays by name in a .npz or .jsonl file", path, len(inputs))
	}
	x, y := inputs[0], inputs[1]
	if y.float && !x.float || y.width > x.width {
		x, y = y, x
	}
	if idx, err := isIDX(path); err != nil {
		return nil, err
	} else if !idx {
		return nilSet(data.CSV(path, data.CSVOptions{Field: x.name, Label: y.name}))
	}
	c, err := data.IDXImages(path)
	if err != nil {
		return nil, err
	}
	if err = c.Rename("y", "\x00"+y.name); err == nil { // the model may call its images y
		if err = c.Rename("x", x.name); err == nil {
			err = c.Rename("\x00"+y.name, y.name)
		}
	}
	return nilSet(c, err)
}

// isIDX reports whether a file, gzipped or not, begins as IDX does.
func isIDX(path string) (bool, error) {
	r, closer, err := file.Unpacked(path)
	if err != nil {
		return false, err
	}
	defer closer.Close()
	head, _ := r.Peek(2)
	return len(head) == 2 && head[0] == 0 && head[1] == 0, nil
}

// fields returns the number of elements in a field.
func fields(v any) int {
	if list := reflect.ValueOf(v); list.Kind() == reflect.Slice {
		return list.Len()
	}
	return 1
}

// digestOf identifies the records.
func digestOf(s data.Set) (string, error) {
	var text []any
	for i := range s.Len() {
		e, err := s.At(i, nil)
		if err != nil {
			return "", err
		}
		for _, name := range slices.Sorted(maps.Keys(e)) {
			if v, word := e[name].(string); word {
				text = append(text, []byte(v))
			} else {
				text = append(text, e[name])
			}
		}
	}
	return digest(text...), nil
}

// batches returns the batches of all epochs by index. Access in order is cheap.
type batches struct {
	set     data.Set
	options data.Options
	next    int64 // index of the batch that pull returns next
	pull    func() (data.Batch, error, bool)
	stop    func()
}

// feed returns the feed of batch i.
func (b *batches) feed(i int64) (ampc.Feed, error) {
	batch, err := b.at(i)
	return batch.Feed, err
}

// at returns batch i.
func (b *batches) at(i int64) (data.Batch, error) {
	if b.pull == nil || i != b.next {
		if b.stop != nil {
			b.stop()
		}
		l, err := data.NewLoader(b.set, b.options)
		if err != nil {
			return data.Batch{}, err
		}
		s, each := l.State(), int64(l.Batches())
		s.Epoch, s.Position = int(i/each), int(i%each)*b.options.Batch
		if err := l.Restore(s); err != nil {
			return data.Batch{}, err
		}
		b.pull, b.stop = iter.Pull2(l.Epochs(context.Background(), 0))
		b.next = i
	}
	batch, err, _ := b.pull()
	b.next++
	return batch, err
}

// check reads the first batch, so that bad records are reported before training starts.
func (b *batches) check() error {
	_, err := b.at(0)
	return err
}
