package ampc

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"math/rand/v2"
	"slices"

	"ampc/internal/safetensors"
	"ampc/ir"
	"ampc/lower"
	"ampc/runtime"
	"ampc/world"
)

// sharded is a variable of which each rank keeps a part (Parallel.Shard). To all but
// the steps that update the parts it is one variable: reading it gathers the parts, which is
// a call of all ranks, and writing it writes this rank's part.
type sharded struct {
	part  lower.Var   // in the store
	world world.World // of the ranks that have the other parts
	sum   uint64      // of the whole that was written last
	// Steps that only read the variable read a copy of the whole in the store, which is
	// current while no training step has run since. asOf is negative where there is none.
	asOf int64
}

// wholeOf is the variable that v is a part of; false where it is none.
func wholeOf(v lower.Var) (lower.Var, bool) {
	of, ok := v.Attr.Get(ir.AttrPart).(string)
	if !ok {
		return v, false
	}
	sizes, _ := v.Attr.Get("whole").([]int64)
	dims := make([]ir.Dim, len(sizes))
	for i, d := range sizes {
		dims[i] = ir.Dim(d)
	}
	w := v
	w.Name, w.Type, w.Attr = of, ir.T(v.Type.DType, dims...), v.Attr.Without(ir.AttrPart).Without("whole")
	if w.Role() == "" {
		w.Kind = ir.Param
	}
	return w, true
}

// addPart declares this rank's part of a variable and cuts it out of what that holds, or
// starts with.
func (s *session) addPart(v, whole lower.Var, w world.World) error {
	if p := s.parts[whole.Name]; p != nil {
		if p.part.Type != v.Type {
			return fmt.Errorf("variable %q is shared among other ranks in an earlier step", whole.Name)
		}
		return nil
	}
	p := &sharded{part: v, world: w, asOf: -1}
	var data []byte
	var err error
	if t, there := s.types[whole.Name]; !there {
		data, err = s.initial(whole)
		s.types[whole.Name], s.vars = whole.Type, append(s.vars, whole)
	} else if t != whole.Type {
		err = fmt.Errorf("variable %q is %s in this step and %s in an earlier one", whole.Name, whole.Type, t)
	} else {
		p.asOf = s.launches.Load()
		data, err = s.read(whole)
	}
	if err != nil {
		return err
	}
	if err := s.store.Declare([]lower.Var{v}); err != nil {
		return err
	}
	s.parts[whole.Name] = p
	return p.write(s.store, data)
}

// write writes this rank's part of a variable that is to hold data.
func (p *sharded) write(store runtime.Store, data []byte) error {
	p.sum = crc64.Checksum(data, polynomial)
	return store.Write(p.part.Name, p.cut(data))
}

// cut is this rank's part of the elements of the whole.
func (p *sharded) cut(data []byte) []byte { return p.cutFor(p.world.Rank(), data) }

// cutFor is the part of rank r.
func (p *sharded) cutFor(r int, data []byte) []byte {
	n := int(p.part.Type.Bytes())
	from := min(r*n, len(data))
	own := data[from:min(from+n, len(data))]
	if len(own) < n { // filled up
		own = append(slices.Clone(own), make([]byte, n-len(own))...)
	}
	return own
}

// gather returns the whole of a variable. All ranks call it, at the same place.
func (s *session) gather(ctx context.Context, name string, bytes int64) ([]byte, error) {
	p := s.parts[name]
	own := make([]byte, p.part.Type.Bytes())
	if err := s.store.Read(p.part.Name, own); err != nil {
		return nil, err
	}
	whole := make([]byte, bytes)
	m := &world.Message{Name: "gather " + name + " (to save, read or evaluate it is a call of all ranks)", Op: world.Gather, DType: p.part.Type.DType, Wire: ir.F32, In: [][]byte{own}, Out: [][]byte{whole}}
	if err := p.world.Start(m); err != nil {
		return nil, err
	}
	return whole, p.world.Wait(ctx, m)
}

// refresh brings the whole variables that a step only reads up to date, before it runs. It is
// a call of all ranks where one of them is sharded.
func (s *session) refresh(ctx context.Context, step *Step) error {
	if len(s.parts) == 0 {
		return nil
	}
	now := s.launches.Load()
	for _, v := range step.program.Vars {
		p := s.parts[v.Name]
		if p == nil || p.asOf == now {
			continue
		}
		data, err := s.gather(ctx, v.Name, v.Type.Bytes())
		if err != nil {
			return fmt.Errorf("run: %w", err)
		}
		if err := s.store.Write(v.Name, data); err != nil {
			return err
		}
		p.asOf = now
	}
	return nil
}

// readsWhole makes a copy of a sharded variable for a step that does not update its parts.
func (s *session) readsWhole(v lower.Var, step *Step) error {
	p := s.parts[v.Name]
	for _, n := range step.graph.Nodes {
		for _, out := range n.Out {
			if out.Next != nil && out.Next.Name == v.Name {
				return fmt.Errorf("%s is sharded by another step and this one updates it: set Parallel.Shard in both", v.Name)
			}
		}
	}
	if p.asOf >= 0 {
		return nil
	}
	return s.store.Declare([]lower.Var{v})
}

// group is the ranks that share variables, nil where no variable is sharded.
func (s *session) group() world.World {
	for _, v := range s.vars {
		if p := s.parts[v.Name]; p != nil {
			return p.world
		}
	}
	return nil
}

// saveShards writes a checkpoint that all ranks make together: each writes its parts, and rank 0
// the index, last. All return an error if one of them has one, and the path holds what it held.
func (s *session) saveShards(w world.World, path string, meta map[string]string) error {
	const call = "SaveFile (a call of all ranks)" // the path may differ between machines
	save := safetensors.Shards{Path: path, Ranks: w.Size()}
	var err error
	if w.Rank() == 0 {
		save.Nonce = rand.Uint64()
		err = save.Begin()
	}
	nonces, err := agree(w, call, save.Nonce, err)
	if err == nil {
		save.Nonce = nonces[0]
		_, err = agree(w, call, 0, save.WriteShard(w.Rank(), s.ownParts()))
	}
	if w.Rank() > 0 {
		if err == nil {
			_, err = agree(w, call, 0, nil)
		}
		return err
	}
	if err == nil {
		var whole, parts []safetensors.Tensor
		for _, v := range s.saved() {
			if s.parts[v.Name] != nil {
				parts = append(parts, stored(v, nil))
			} else {
				whole = append(whole, s.tensor(v))
			}
		}
		if err = save.Commit(meta, whole, parts); err == nil {
			_, err = agree(w, call, 0, nil)
			return err
		}
		_, err = agree(w, call, 0, err)
	}
	save.Discard()
	return err
}

// ownParts are this rank's parts of the sharded variables, without what fills up the last ones.
func (s *session) ownParts() (parts []safetensors.Tensor) {
	for _, v := range s.saved() {
		p := s.parts[v.Name]
		if p == nil {
			continue
		}
		each, all := p.part.Type.Shape.Elements(), v.Type.Shape.Elements()
		from := min(int64(p.world.Rank())*each, all)
		own := min(each, all-from)
		t := stored(v, func(to io.Writer) error {
			data := make([]byte, p.part.Type.Bytes())
			if err := s.store.Read(p.part.Name, data); err != nil {
				return err
			}
			_, err := to.Write(data[:own*v.Type.DType.Size()])
			return err
		})
		t.Shape = []int64{own}
		parts = append(parts, t)
	}
	return parts
}

// world is that of the ranks which train together, nil where there is one process.
func (s *session) world() world.World {
	for _, step := range s.steps {
		if step.world != nil && step.world.Size() > 1 {
			return step.world
		}
	}
	return s.group()
}

// loadedBy makes all ranks take a checkpoint, or none. Each has read its own file: where ranks do
// not share a file system, that may be another one. sum is of what this rank has read.
func loadedBy(w world.World, path string, sum uint64, err error) error {
	sums, err := agree(w, "LoadFile (a call of all ranks)", sum, err) // the path may differ between machines
	if err != nil {
		return err
	}
	for r, x := range sums {
		if x != sums[0] {
			return fmt.Errorf("%s: rank %d has read another checkpoint than rank 0: put it where all ranks see the same file, or copy it to each machine", path, r)
		}
	}
	return nil
}

// agree makes an error of one rank one of all; the others get its first 255 bytes. It returns the
// numbers that the ranks give.
func agree(w world.World, call string, number uint64, err error) ([]uint64, error) {
	own := make([]byte, 8+256) // ends in a zero
	binary.LittleEndian.PutUint64(own, number)
	if err != nil {
		copy(own[8:len(own)-1], err.Error())
	}
	all := make([]byte, len(own)*w.Size())
	m := &world.Message{Name: call, Op: world.Gather, DType: ir.U8, Wire: ir.F32, In: [][]byte{own}, Out: [][]byte{all}}
	if lost := w.Start(m); lost != nil {
		return nil, errors.Join(err, lost)
	}
	if lost := w.Wait(context.Background(), m); lost != nil || err != nil {
		return nil, errors.Join(err, lost)
	}
	numbers := make([]uint64, w.Size())
	for r := range numbers {
		of := all[r*len(own) : (r+1)*len(own)]
		if text := of[8:]; text[0] != 0 {
			return nil, fmt.Errorf("rank %d: %s", r, text[:slices.Index(text, 0)])
		}
		numbers[r] = binary.LittleEndian.Uint64(of)
	}
	return numbers, nil
}
