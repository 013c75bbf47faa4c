package host

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"ampc/internal/file"
	"ampc/ir"
	"ampc/lower"
	"ampc/onnx"
	"ampc/passes"
	"ampc/runtime"
)

// Options say how a model runs.
type Options struct {
	Config  passes.Config   // the policy, and how regions are compiled
	Backend runtime.Backend // where regions run
	// Programs and ProgramBytes bound the programs that are kept; zero: 1024, and 1 GB.
	// The program that ran longest ago goes first. Weights do not count.
	Programs     int
	ProgramBytes int64
	// Iterations bounds those of all loops of one run together; zero: a million.
	Iterations int
	// Bytes bounds what values between regions hold during a run; zero: 8 GB.
	Bytes int64
	// Observe, where it is set, is given every tensor that is fed or computed, by its name in
	// whatever graph: regions give all their values then, and nodes that have graphs or call
	// functions run on the host.
	Observe func(name string, v *Value)
}

// Session is a model that runs. Its weights are held once, whatever is fed. Any
// number of goroutines may run it: where the backend allows it, their programs run at
// the same time, all else one after the other.
type Session struct {
	mu        sync.Mutex     // free while a program runs
	runs      sync.WaitGroup // in flight; joined with mu held
	model     *onnx.Model
	main      *scope
	o         Options
	store     runtime.Store
	names     map[*onnx.Tensor]string // of initializers, in the store
	taken     map[string]bool
	inits     map[string]*onnx.Tensor // by the names of variables
	inputs    []*onnx.Info
	seed      maphash.Seed
	equal     map[uint64][]*onnx.Tensor     // tables of integers, by the hashes of their contents
	same      map[*onnx.Tensor]*onnx.Tensor // as equal has them
	types     map[string]ir.Type            // of variables in the store
	cache     cache
	foresight foresight
	folds     onnx.Folds
	ops       map[string]operator
	traced    time.Duration // spent on making entries
	compiled  int           // regions
	// lastForm is the form of the region that was compiled last, by the key of its skeleton.
	lastForm map[[sha256.Size]byte]*form
	loaded   time.Duration // of it on bringing weights into memory
	reading  atomic.Int64  // nanoseconds, on reading weights at any time
	steps    []Step
	single   []single // in the order in which they were imported
	closed   bool
}

// Open prepares the model in a file. The file is read until Close.
func Open(path string, o Options) (*Session, error) {
	m, err := onnx.Open(path)
	if err != nil {
		return nil, err
	}
	s, err := New(m, o)
	if err != nil {
		m.Close()
		return nil, file.Error(path, err)
	}
	return s, nil
}

// New prepares a model, which Close closes.
func New(m *onnx.Model, o Options) (*Session, error) {
	o.Programs, o.ProgramBytes = cmp.Or(o.Programs, 1024), cmp.Or(o.ProgramBytes, 1<<30)
	o.Iterations, o.Bytes = cmp.Or(o.Iterations, 1e6), cmp.Or(o.Bytes, 8<<30)
	if err := checkRules(m, o.Config.Policy); err != nil {
		return nil, err
	}
	o.Config.PartialRules = true
	main, err := newScope("", nil, m.Opsets, m.Graph)
	if err != nil {
		return nil, err
	}
	if o.Observe == nil {
		main.foldNorms(m)
	}
	store, err := o.Backend.NewStore(nil)
	if err != nil {
		return nil, err
	}
	return &Session{folds: onnx.Folds{}, inputs: m.Inputs(), ops: operators(), lastForm: map[[sha256.Size]byte]*form{}, cache: cache{forms: map[[sha256.Size]byte]*entry{}, over: map[overKey]*program{}}, model: m, main: main, o: o, store: store, names: map[*onnx.Tensor]string{}, inits: map[string]*onnx.Tensor{}, seed: maphash.MakeSeed(), equal: map[uint64][]*onnx.Tensor{}, same: map[*onnx.Tensor]*onnx.Tensor{}, taken: map[string]bool{}, types: map[string]ir.Type{}}, nil
}

// Inputs lists what Run must be given.
func (s *Session) Inputs() []*onnx.Info { return s.inputs }

// Close frees the programs, the weights and the file. It waits for runs in flight.
// The backend stays open.
func (s *Session) Close() error {
	s.mu.Lock()
	was := s.closed
	s.closed = true
	s.mu.Unlock()
	s.runs.Wait()
	if was {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.cache.close()
	s.main = nil
	return cmp.Or(err, s.store.Close(), s.model.Close())
}

// Run runs the model on the inputs in and returns its outputs by name. A program is
// compiled where there is none yet for the sizes of what is fed.
func (s *Session) Run(ctx context.Context, in map[string]*Value) (map[string]*Value, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("the session was closed before this run")
	}
	s.runs.Add(1)
	defer s.runs.Done()
	if err := s.check(in); err != nil {
		return nil, s.located(err)
	}
	env := map[string]*Value{}
	for name, v := range in {
		x := *v
		x.stable = true
		env[name] = &x
	}
	s.foresight.note(env)
	r := &run{s: s, ctx: ctx, in: maps.Clone(env)}
	out, err := r.scope(s.main, nil, env)
	if err != nil {
		return nil, s.located(err)
	}
	s.steps = r.steps
	results := map[string]*Value{}
	for i, y := range s.main.outputs {
		results[y.Name] = out[i]
	}
	return results, nil
}

func (s *Session) located(err error) error {
	if s.model.Path() == "" {
		return err
	}
	return fmt.Errorf("%s: %w", s.model.Path(), err)
}

// check compares what is fed with what the model declares.
func (s *Session) check(in map[string]*Value) error {
	dims := map[string]int64{}
	for _, x := range s.model.Graph.Inputs {
		v := in[x.Name]
		if v == nil {
			if s.main.inits[x.Name] == nil {
				return fmt.Errorf("input %q is missing: feed it", x.Name)
			}
			continue
		}
		if err := checkInput(x, v, dims); err != nil {
			return fmt.Errorf("input %q %w", x.Name, err)
		}
	}
	for name := range in {
		if !slices.Contains(s.main.inputs, name) {
			return fmt.Errorf("the model has no input %q: its inputs are %q", name, s.main.inputs)
		}
	}
	return nil
}

func checkInput(x *onnx.Info, v *Value, dims map[string]int64) error {
	if x.Kind != "" || v.Kind != Tensor {
		if x.Kind != "optional" && x.Kind != v.Kind.kind() {
			return fmt.Errorf("is a %s, want a %s", v.Kind, cmp.Or(x.Kind, "tensor"))
		}
		return nil
	}
	d, err := x.DType.DType()
	if err != nil {
		return err
	}
	if v.Type.DType != d {
		return fmt.Errorf("is %s, want %s", v.Type, d)
	}
	if !x.Rank {
		return nil
	}
	have := ir.Sizes(v.Type.Shape)
	if len(have) != len(x.Dims) {
		return fmt.Errorf("is %s, want rank %d", v.Type, len(x.Dims))
	}
	for i, want := range x.Dims {
		bound, known := dims[want.Name]
		switch {
		case want.Known && want.Size != have[i]:
			return fmt.Errorf("is %s, want %d in dimension %d", v.Type, want.Size, i)
		case want.Known || want.Name == "":
		case known && bound != have[i]:
			return fmt.Errorf("is %s, but dimension %q is %d in another input", v.Type, want.Name, bound)
		default:
			dims[want.Name] = have[i]
		}
	}
	return nil
}

// kind is "" for a tensor, as onnx.Given has it.
func (k Kind) kind() string {
	if k == Tensor {
		return ""
	}
	return k.String()
}

// nameOf is the name of an initializer in the store.
func (s *Session) nameOf(t *onnx.Tensor, name string, in *scope) string {
	if known, ok := s.names[t]; ok {
		return known
	}
	if in.path != "" && s.taken[name] {
		name = in.path + "." + name
	}
	for base, i := name, 2; s.taken[name]; i++ {
		name = fmt.Sprintf("%s.%d", base, i)
	}
	s.names[t], s.taken[name] = name, true
	s.inits[onnx.VarName(name)] = t
	return name
}

// shared is t, or a table of integers with the same contents that came before: each
// layer of an export has a causal mask of its own.
func (s *Session) shared(t *onnx.Tensor) *onnx.Tensor {
	if x := s.same[t]; x != nil {
		return x
	}
	s.same[t] = t
	typ, err := t.Type()
	if err != nil || typ.DType.Float() {
		return t
	}
	b, err := s.model.Bytes(t)
	if err != nil {
		return t
	}
	key := maphash.Bytes(s.seed, b)
	for _, x := range s.equal[key] {
		if other, err := x.Type(); err != nil || other != typ {
			continue
		}
		if c, err := s.model.Bytes(x); err == nil && bytes.Equal(b, c) {
			s.same[t] = x
			return x
		}
	}
	s.equal[key] = append(s.equal[key], t)
	return t
}

// declare brings the variables of a program into the store.
func (s *Session) declare(p *lower.Program) error {
	vars, err := runtime.Variables(p)
	if err != nil {
		return err
	}
	for _, v := range vars {
		if _, ok := s.types[v.Name]; ok {
			continue
		}
		if err := s.store.Declare([]lower.Var{v}); err != nil {
			return err
		}
		if err := s.fill(&v); err != nil {
			return err
		}
		s.types[v.Name] = v.Type
	}
	return nil
}

// fill writes into a variable what the model has for it.
func (s *Session) fill(v *lower.Var) error {
	t := s.inits[v.Name]
	if t == nil {
		data, err := runtime.InitialBytes(v, 0)
		if err != nil {
			return err
		}
		return s.store.Write(v.Name, data)
	}
	read := func(dst []byte) error {
		start := time.Now()
		defer func() { s.reading.Add(int64(time.Since(start))) }()
		err := s.model.Copy(dst, t)
		if v.Type.DType == ir.Bool { // any byte but 0 is true in a file, and 1 alone in memory
			for i, x := range dst {
				if x != 0 {
					dst[i] = 1
				}
			}
		}
		return err
	}
	if f, ok := s.store.(runtime.Filler); ok {
		return f.Fill(v.Name, read)
	}
	data := make([]byte, v.Type.Bytes())
	if err := read(data); err != nil {
		return err
	}
	return s.store.Write(v.Name, data)
}

// Compiling is how long runs have spent on importing regions and making their
// programs, all together, without bringing weights into memory.
func (s *Session) Compiling() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.traced - s.loaded
}
