package weights

import (
	"errors"
	"fmt"
	"strings"

	"ampc"
	"ampc/internal/file"
	"ampc/ir"
	"ampc/passes"
)

// Report says what Load found.
type Report struct {
	Loaded    []Loaded
	Missing   []string    // variables that no tensor of the file is for
	Differing []Different // variables whose tensor has another shape or kind of elements
	Fresh     []string    // variables that Fresh let keep what they hold
	Unused    []string    // tensors that belong to no variable
	Ignored   []string    // tensors that Ignore left, counters of PyTorch's batch norms, training state of an ampc checkpoint
}

// Loaded is a variable that got its value from the file.
type Loaded struct {
	Variable   string
	Tensor     string
	DType      ampc.DType // in the file
	Transposed bool
}

// Different is a variable that does not fit the tensor which is named as it.
type Different struct {
	Variable, Tensor string
	Model, File      ampc.Type // File as it would be after a transposition
}

// String says it in a few lines.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s loaded", plural(len(r.Loaded), "variable"))
	for _, part := range []struct {
		what  string
		names []string
	}{
		{"missing from the file", r.Missing}, {"differing", r.differing()}, {"fresh", r.Fresh}, {"unused", r.Unused}, {"ignored", r.Ignored},
	} {
		if len(part.names) > 0 {
			fmt.Fprintf(&b, "\n%s: %s", part.what, list(part.names))
		}
	}
	return b.String()
}

func (r *Report) differing() []string {
	var out []string
	for _, d := range r.Differing {
		out = append(out, fmt.Sprintf("%s is %s in the model and %s in the file", d.Variable, d.Model, d.File))
	}
	return out
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// list shows the first of many names.
func list(names []string) string {
	const shown = 4
	quoted := make([]string, 0, shown+1)
	for i, n := range names {
		if i == shown {
			quoted = append(quoted, fmt.Sprintf("and %d more", len(names)-shown))
			break
		}
		quoted = append(quoted, ir.Printable(n))
	}
	return strings.Join(quoted, ", ")
}

// Load reads weights from the file at path (see Open for the formats) into the
// parameters and running statistics of m, of which a step must be compiled. Tensors
// of any float dtype are converted to f32; f16 and bf16 are exact in it.
//
// Every variable must be in the file with its shape, and every tensor of the file must
// belong to a variable, unless an option says otherwise; a checkpoint of SaveFile may
// hold training state besides. An error of a file that does not fit changes nothing
// and comes with the Report.
func Load(m *ampc.Model, path string, opts ...Option) (*Report, error) {
	r, err := rulesOf(opts)
	if err != nil {
		return nil, err
	}
	if len(m.Variables()) == 0 {
		return nil, fmt.Errorf("%s: no step of the model is compiled yet: Train or Infer first, then load", path)
	}
	f, err := Open(path, key(r)...)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	l := &loading{m: m, f: f, rules: r, report: &Report{}}
	err = file.Guard(func() error {
		if err := l.plan(); err != nil {
			return err
		}
		return l.run()
	})
	if err != nil {
		return l.report, fmt.Errorf("%s: %w", path, err)
	}
	return l.report, nil
}

func key(r *rules) []string {
	if r.key == "" {
		return nil
	}
	return []string{r.key}
}

// loading is one call of Load.
type loading struct {
	m      *ampc.Model
	f      *File
	rules  *rules
	report *Report
	moves  []move
	buf    [2][]byte // of conversions
}

// move is a tensor on its way into a variable.
type move struct {
	variable string
	typ      ir.Type
	t        *tensor
}

// variables are the model's parameters and states that are no training state and
// stand in a compiled step.
func variables(m *ampc.Model) []*ir.Value {
	there := map[string]bool{}
	for _, name := range m.Variables() {
		there[name] = true
	}
	var out []*ir.Value
	for _, v := range m.Graph().Vars {
		if (v.Kind == ir.Param || v.Kind == ir.State && v.Attr.Get("role") == nil) && there[v.Name] {
			out = append(out, v)
		}
	}
	return out
}

// plan finds the tensor of each variable and checks whether the file fits.
func (l *loading) plan() error {
	var torch layout
	if l.rules.torch {
		torch = torchLayout(l.m.Graph())
	}
	used := map[string]bool{}
	for _, v := range variables(l.m) {
		t, turn := l.find(l.rules.places(v.Name, torch))
		fresh := matches(l.rules.fresh, v.Name)
		if t == nil && !fresh {
			l.report.Missing = append(l.report.Missing, v.Name)
			continue
		}
		fit := false
		if t != nil {
			used[t.name] = true
			if turn {
				t = t.transposed()
			}
			fit = fits(t, v.Type)
		}
		switch {
		case fit:
			l.moves = append(l.moves, move{v.Name, v.Type, t})
			l.report.Loaded = append(l.report.Loaded, Loaded{v.Name, t.name, t.dtype, turn && len(t.shape) == 2})
		case fresh:
			l.report.Fresh = append(l.report.Fresh, v.Name)
		default:
			l.report.Differing = append(l.report.Differing, Different{v.Name, t.name, ampc.TypeFromIR(v.Type), t.Type()})
		}
	}
	l.leftOver(used)
	return l.refuse()
}

// find takes the first place where there is a tensor.
func (l *loading) find(places []place) (*tensor, bool) {
	for _, p := range places {
		if t := l.f.tensors[p.name]; t != nil {
			return t, p.turn
		}
	}
	return nil, false
}

// fits says whether a tensor becomes a value of type want.
func fits(t *tensor, want ir.Type) bool {
	if len(t.shape) != want.Shape.Rank() || t.dtype != ampc.DType(want.DType) && !(t.dtype.Float() && want.DType.Float()) {
		return false
	}
	for i, d := range want.Shape.Dims() {
		if int64(d) != t.shape[i] {
			return false
		}
	}
	return true
}

// leftOver notes what no variable has used.
func (l *loading) leftOver(used map[string]bool) {
	for _, name := range l.f.names {
		switch {
		case used[name]:
		case matches(l.rules.ignore, name) || l.rules.torch && strings.HasSuffix(name, ".num_batches_tracked") || l.trainingState(name):
			l.report.Ignored = append(l.report.Ignored, name)
		default:
			l.report.Unused = append(l.report.Unused, name)
		}
	}
}

// trainingState says whether a tensor of an ampc checkpoint is no weight.
func (l *loading) trainingState(name string) bool {
	if l.f.Meta("ampc.format") == "" {
		return false
	}
	_, made := passes.ParseStateName(name)
	return made || strings.HasPrefix(name, ir.Reserved)
}

// refuse is the error of a file that does not fit.
func (l *loading) refuse() error {
	r, partial := l.report, l.rules.partial
	var wrong []string
	if n := len(r.Missing); n > 0 && !partial {
		wrong = append(wrong, fmt.Sprintf("%s missing (%s)", plural(n, "variable"), list(r.Missing)))
	}
	if n := len(r.Differing); n > 0 {
		wrong = append(wrong, fmt.Sprintf("%s differing (%s)", plural(n, "variable"), list(r.differing())))
	}
	if n := len(r.Unused); n > 0 && !partial {
		wrong = append(wrong, fmt.Sprintf("%s unused (%s)", plural(n, "tensor"), list(r.Unused)))
	}
	if n := len(l.f.skipped); n > 0 && !partial {
		wrong = append(wrong, fmt.Sprintf("%s that cannot be read (%s)", plural(n, "tensor"), list(l.f.skipped)))
	}
	if len(wrong) == 0 && len(r.Loaded) == 0 {
		wrong = append(wrong, "no tensor of the file belongs to a variable of the model")
	}
	if len(wrong) == 0 {
		return nil
	}
	r.Loaded = nil
	return errors.New(strings.Join(wrong, ", ") + ": nothing is loaded; see weights.PyTorch, Rename, Fresh, Ignore and Partial")
}

// run checks the tensors and writes them to the variables.
func (l *loading) run() error {
	for _, mv := range l.moves {
		err := mv.t.verify()
		if err == nil && mv.t.dtype == ampc.F64 {
			_, over := f32(l.dense(mv.t), ampc.F64, l.buf[1])
			if over > 0 {
				err = fmt.Errorf("%d of its f64 elements are beyond the range of f32", over)
			}
		}
		if err != nil {
			l.report.Loaded = nil
			return fmt.Errorf("tensor %q: %w", mv.t.name, err)
		}
	}
	for _, mv := range l.moves {
		b, d := l.dense(mv.t), mv.t.dtype
		if d.Float() && d != ampc.F32 {
			b, _ = f32(b, d, l.buf[1])
			l.buf[1], d = b, ampc.F32
		}
		if err := l.m.SetVariable(mv.variable, ampc.HostTensor{Type: ampc.TypeFromIR(mv.typ).With(d), Bytes: b}); err != nil {
			return err
		}
	}
	return nil
}

// dense is tensor.dense with the memory of the call before.
func (l *loading) dense(t *tensor) []byte {
	b := t.dense(l.buf[0])
	if !t.plain() {
		l.buf[0] = b
	}
	return b
}
