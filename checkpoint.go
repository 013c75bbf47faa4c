package ampc

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"ampc/internal/fp"
	"ampc/internal/safetensors"
	"ampc/ir"
	"ampc/lower"
	"ampc/passes"
)

// What a checkpoint's metadata holds beside the user's own entries, which
// stand under "user.".
const (
	metaFormat = "ampc.format"
	metaModel  = "ampc.model"
	metaPolicy = "ampc.policy"
	userPrefix = "user."
	format     = "2"

	formatBefore = "1" // whose names are those of passes.StateName.Before
)

// SetMeta puts an entry into the checkpoints that SaveFile writes; LoadFile
// brings it back. Data positions and vocabularies go here.
func (m *Model) SetMeta(key, value string) error {
	defer m.gate.hold()()
	if m.session == nil {
		return fmt.Errorf("metadata %q: %w", key, m.idle())
	}
	if !utf8.ValidString(key + value) {
		return fmt.Errorf("metadata %q: the key or the value is not UTF-8", key)
	}
	m.session.meta[key] = value
	return nil
}

// Meta returns an entry set by SetMeta or read by LoadFile, "" where there is none.
func (m *Model) Meta(key string) string {
	defer m.gate.hold()()
	if m.session == nil {
		return ""
	}
	return m.session.meta[key]
}

// SaveFile writes parameters, optimizer and scaler state, random state,
// counters and metadata of all steps in the safetensors layout. The file
// appears as a whole or not at all. Low copies and gradient accumulators are
// not part of it: they are derived.
func (m *Model) SaveFile(path string) error {
	defer m.gate.hold()()
	s := m.session
	if s == nil {
		return fmt.Errorf("%s: nothing to save: %w", path, m.idle())
	}
	var tensors []safetensors.Tensor
	for _, v := range s.vars {
		if !lasting(v) {
			continue
		}
		tensors = append(tensors, stored(v, func(w io.Writer) error {
			data, err := s.read(v)
			if err != nil {
				return err
			}
			_, err = w.Write(data)
			return err
		}))
	}
	return safetensors.WriteFile(path, m.header(), tensors)
}

// lasting says whether a variable belongs into checkpoints.
func lasting(v lower.Var) bool { return v.Role() != "acc" && v.Role() != ir.RoleCopy }

func sizes(s ir.Shape) []int64 {
	out := []int64{}
	for _, d := range s.Dims() {
		out = append(out, int64(d))
	}
	return out
}

// policyList names the policies of the training steps, in the order of their names.
// A session that trains nothing has those of its inference steps, each once.
func (s *session) policyList() string {
	var names []string
	for _, step := range slices.Sorted(maps.Keys(s.policies)) {
		names = append(names, s.policies[step])
	}
	if len(names) == 0 {
		for _, step := range s.steps {
			names = append(names, policyName(step.config.Policy))
		}
		slices.Sort(names)
		names = slices.Compact(names)
	}
	if len(names) == 0 { // every step is closed
		return policyName(passes.Policy{})
	}
	return strings.Join(names, ",")
}

func policyName(p passes.Policy) string {
	if p.Name == "" {
		return "f32"
	}
	return p.Name
}

// LoadFile reads what SaveFile wrote into the variables of the compiled steps,
// so that training goes on as if it had not stopped. The file is checked as a
// whole first: an error leaves everything as it was. A file written under
// another policy loads too; Warnings then says what differs. Training state that
// no compiled step has, such as another optimizer's moments or the counters of a
// step with another name, is an error unless LeaveState is given: training would
// start over with it.
func (m *Model) LoadFile(path string, opts ...LoadOption) error {
	defer m.gate.hold()()
	s := m.session
	if s == nil {
		return fmt.Errorf("%s: nothing to load into: %w", path, m.idle())
	}
	f, err := safetensors.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	names := s.namesIn(f)
	notes, err := s.match(f, m.Graph().Name, names)
	if err == nil && len(opts) == 0 {
		err = s.homeless(f, names)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	data := map[string][]byte{}
	for _, v := range s.vars {
		info, ok := f.Lookup(names[v.Name])
		if !ok || !lasting(v) {
			continue
		}
		data[v.Name] = make([]byte, info.Bytes())
		if err := f.Read(info.Name, data[v.Name]); err != nil {
			return err
		}
		if err := checkScale(v, data[v.Name]); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	for _, v := range s.vars {
		if b, ok := data[v.Name]; ok {
			if err := s.write(v, b); err != nil {
				return err
			}
			notes = append(notes, s.lossy(v, b)...)
		}
	}
	s.meta = map[string]string{}
	for k, v := range f.Meta {
		if key, ok := strings.CutPrefix(k, userPrefix); ok {
			s.meta[key] = v
		}
	}
	s.notes = notes
	return nil
}

// checkScale refuses a loss scale that would round gradients or leave nothing of them.
func checkScale(v lower.Var, data []byte) error {
	if v.Role() != ir.RoleScale {
		return nil
	}
	x := Host{Type{v.Type}, data}.At(0)
	if significand, _ := math.Frexp(x); significand != 0.5 {
		return fmt.Errorf("loss scale %q is %g: want a power of two, finite and above 0", v.Name, x)
	}
	return nil
}

// Warnings says what the last LoadFile found different from this session, one
// line each: another policy, states that start anew or were left out, weights
// that the low dtype cannot hold.
func (m *Model) Warnings() []string {
	defer m.gate.hold()()
	if m.session == nil {
		return nil
	}
	return slices.Clone(m.session.notes)
}

// match compares the file with the session before anything is changed.
// Parameters must be there with their types; other states may come and go
// with the policy, the optimizer and the scaler, which is worth a note.
func (s *session) match(f *safetensors.File, model string, names map[string]string) ([]string, error) {
	if is := f.Meta[metaFormat]; is != format && is != formatBefore {
		return nil, fmt.Errorf("not a checkpoint of ampc: metadata %s is %q, want %q", metaFormat, is, format)
	}
	if f.Meta[metaModel] != model {
		return nil, fmt.Errorf("holds model %q, this one is %q", f.Meta[metaModel], model)
	}
	var notes []string
	if was, is := f.Meta[metaPolicy], s.policyList(); was != "" && was != is {
		notes = append(notes, fmt.Sprintf("saved under policy %s, loaded under %s", was, is))
	}
	var absent, idle []string
	for _, v := range s.vars {
		if !lasting(v) {
			continue
		}
		info, ok := f.Lookup(names[v.Name])
		switch {
		case ok && (info.DType != safetensors.Named(v.Type.DType.String()) || !slices.Equal(info.Shape, sizes(v.Type.Shape))):
			return nil, fmt.Errorf("holds %s, the model wants %s", info, v.Type)
		case !ok && v.Kind == ir.Param:
			return nil, fmt.Errorf("has no parameter %q %s", v.Name, v.Type)
		case !ok:
			absent = append(absent, v.Name)
		}
	}
	read := readNames(names)
	for _, info := range f.Tensors {
		if !read[info.Name] {
			idle = append(idle, ir.Printable(info.Name))
		}
	}
	notes = append(notes, few(absent, "not in the file, starts anew")...)
	return append(notes, few(idle, "in the file, has no use here")...), nil
}

// few says the same of each name, in a line each or, of many, in one.
func few(names []string, what string) []string {
	const lines, shown = 6, 3
	if len(names) > lines {
		return []string{fmt.Sprintf("%s and %d more: %s", strings.Join(names[:shown], ", "), len(names)-shown, what)}
	}
	for i, name := range names {
		names[i] = name + ": " + what
	}
	return names
}

// lossy says which weights of v lose their value in the low dtype that the
// steps cast it to: too large for it, or so small that they become zero.
func (s *session) lossy(v lower.Var, data []byte) []string {
	if v.Type.DType != ir.F32 {
		return nil
	}
	var notes []string
	for _, low := range s.copies(v.Name) {
		h := Host{Type{v.Type}, data}
		inf, zero := 0, 0
		for i := range h.Len() {
			x := h.At(i)
			y := roundTo(x, low)
			if math.IsInf(y, 0) && !math.IsInf(x, 0) {
				inf++
			} else if y == 0 && x != 0 {
				zero++
			}
		}
		if inf+zero > 0 {
			notes = append(notes, fmt.Sprintf("%s: %d of %d weights overflow in %s and %d become zero", v.Name, inf, h.Len(), low, zero))
		}
	}
	return notes
}

// copies lists the low dtypes that programs keep a copy of a variable in.
func (s *session) copies(name string) []ir.DType {
	var low []ir.DType
	for _, step := range s.steps {
		for _, c := range step.program.WeightCopies {
			if c.Var == name && !slices.Contains(low, c.DType) {
				low = append(low, c.DType)
			}
		}
	}
	return low
}

func roundTo(x float64, d ir.DType) float64 {
	if d == ir.BF16 {
		return float64(fp.BF16ToF32(fp.BF16(float32(x))))
	}
	return float64(fp.F16ToF32(fp.F16(float32(x))))
}
