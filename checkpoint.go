package ampc

import (
	"fmt"
	"hash/crc64"
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

// SetMeta adds an entry to the checkpoints that SaveFile writes; LoadFile restores
// it. Use it for the position in the data, vocabularies and the like.
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

// SaveFile writes parameters, optimizer and scaler state, random state, counters
// and metadata of all steps to a safetensors file. The file appears as a whole or
// not at all. It does not contain 16-bit copies and gradient accumulators, which
// are computed anew.
//
// With Parallel.Shard all ranks call it with paths of the same file, and none holds more than its
// part: each writes its own into a folder beside path, NAME-NUMBER.shards, and rank 0 writes the
// file, the index, last. LoadFile and the ampc command read it like any other checkpoint, on any
// number of ranks, as long as the folder lies beside it. An error of one rank is one of all, and
// leaves the checkpoint that was there. Folders of earlier saves to the path are removed, unless a
// file beside it is their index.
func (m *Model) SaveFile(path string) error {
	defer m.gate.hold()()
	s := m.session
	if s == nil {
		return fmt.Errorf("%s: nothing to save: %w", path, m.idle())
	}
	if w := s.group(); w != nil {
		return s.saveShards(w, path, m.header())
	}
	var tensors []safetensors.Tensor
	for _, v := range s.saved() {
		tensors = append(tensors, s.tensor(v))
	}
	return safetensors.WriteFile(path, m.header(), tensors)
}

// tensor writes a variable, which is read when it is written.
func (s *session) tensor(v lower.Var) safetensors.Tensor {
	return stored(v, func(w io.Writer) error {
		data, err := s.read(v)
		if err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	})
}

// saved lists what checkpoints hold.
func (s *session) saved() []lower.Var {
	var out []lower.Var
	for _, v := range s.vars {
		if lasting(v) {
			out = append(out, v)
		}
	}
	return out
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
// so that training continues as if it had not stopped. The file is checked as a
// whole first: an error leaves everything as it was. A file written under
// another policy loads too; Warnings then says what differs. Training state that
// no compiled step has, such as another optimizer's moments or the counters of a
// step with another name, is an error unless LeaveState is given: training would
// start over with it.
//
// Where a step trains on several ranks, all call it, and each reads its own file: all load, or
// none does and all return the error. A rank that has read other contents than rank 0, as where a
// file system is not shared, is an error that names it.
func (m *Model) LoadFile(path string, opts ...LoadOption) error {
	defer m.gate.hold()()
	s := m.session
	if s == nil {
		return fmt.Errorf("%s: nothing to load into: %w", path, m.idle())
	}
	c, err := s.readFile(path, m.Graph().Name, slices.ContainsFunc(opts, func(o LoadOption) bool { return o.leave }))
	if w := s.world(); w != nil {
		err = loadedBy(w, path, c.digest(s.vars), err)
	}
	if err != nil {
		return err
	}
	for _, v := range s.vars {
		if b, ok := c.data[v.Name]; ok {
			if err := s.write(v, b); err != nil {
				return err
			}
			c.notes = append(c.notes, s.lossy(v, b)...)
		}
	}
	s.meta, s.notes = c.meta, c.notes
	return nil
}

// checkpoint is what a file holds for the variables of a session.
type checkpoint struct {
	data  map[string][]byte // by the name of the variable
	meta  map[string]string // the user's
	notes []string
}

// readFile reads and checks a checkpoint, and changes nothing.
func (s *session) readFile(path, model string, leave bool) (c checkpoint, err error) {
	f, err := safetensors.Open(path)
	if err != nil {
		return c, err
	}
	defer f.Close()
	names := s.namesIn(f)
	c.notes, err = s.match(f, model, names, leave && len(s.policies) == 0)
	if err == nil && !leave {
		err = s.refuseUnread(f, names)
	}
	if err != nil {
		return c, fmt.Errorf("%s: %w", path, err)
	}
	c.data, c.meta = map[string][]byte{}, map[string]string{}
	for _, v := range s.vars {
		info, ok := f.Lookup(names[v.Name])
		if !ok || !lasting(v) {
			continue
		}
		c.data[v.Name] = make([]byte, info.Bytes())
		if err := f.Read(info.Name, c.data[v.Name]); err != nil {
			return c, err
		}
		if err := checkScale(v, c.data[v.Name]); err != nil {
			return c, fmt.Errorf("%s: %w", path, err)
		}
	}
	for k, v := range f.Meta {
		if key, ok := strings.CutPrefix(k, userPrefix); ok {
			c.meta[key] = v
		}
	}
	return c, nil
}

// digest is of the tensors and the user's metadata.
func (c *checkpoint) digest(vars []lower.Var) uint64 {
	sum := crc64.New(polynomial)
	for _, v := range vars {
		fmt.Fprintf(sum, "%q %d ", v.Name, len(c.data[v.Name]))
		sum.Write(c.data[v.Name])
	}
	for _, k := range slices.Sorted(maps.Keys(c.meta)) {
		fmt.Fprintf(sum, "%q %q ", k, c.meta[k])
	}
	return sum.Sum64()
}

// checkScale refuses a loss scale that would round gradients or leave nothing of them.
func checkScale(v lower.Var, data []byte) error {
	if v.Role() != ir.RoleScale {
		return nil
	}
	x := HostTensor{Type{v.Type}, data}.At(0)
	if significand, _ := math.Frexp(x); significand != 0.5 {
		return fmt.Errorf("loss scale %q is %g: want a power of two, finite and above 0", v.Name, x)
	}
	return nil
}

// Warnings lists, one line each, what the last LoadFile found different from the
// compiled steps: another policy, states that start anew or were left out, weights
// beyond the range of the 16-bit dtype. A model that infers only needs no training
// state and its policy, and with LeaveState nothing is said of them.
func (m *Model) Warnings() []string {
	defer m.gate.hold()()
	if m.session == nil {
		return nil
	}
	return slices.Clone(m.session.notes)
}

// match compares the file with the session before anything is changed.
// Parameters must be there with their types; other states may come and go
// with the policy, the optimizer and the scaler, which is worth a note; to infer
// only, training state and its policy are not.
func (s *session) match(f *safetensors.File, model string, names map[string]string, infer bool) ([]string, error) {
	if is := f.Meta[metaFormat]; is != format && is != formatBefore {
		return nil, fmt.Errorf("not a checkpoint of ampc: metadata %s is %q, want %q", metaFormat, is, format)
	}
	if f.Meta[metaModel] != model {
		return nil, fmt.Errorf("holds model %q, this one is %q", f.Meta[metaModel], model)
	}
	var notes []string
	if was, is := f.Meta[metaPolicy], s.policyList(); was != "" && was != is && !infer {
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
		if !read[info.Name] && !(infer && trainingState(f, info.Name)) {
			idle = append(idle, ir.Printable(info.Name))
		}
	}
	notes = append(notes, few(absent, "missing from the file: starts at its initial value")...)
	return append(notes, few(idle, "unused checkpoint entry")...), nil
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
		h := HostTensor{Type{v.Type}, data}
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
			if (c.Var == name || s.parts[name] != nil && c.Var == s.parts[name].part.Name) && !slices.Contains(low, c.DType) {
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

// LoadOption changes what LoadFile takes.
type LoadOption struct{ leave bool }

// LeaveState lets LoadFile leave training state in the file that no compiled step
// has: to load for inference, or to train on with another optimizer.
func LeaveState() LoadOption { return LoadOption{leave: true} }

// namesIn gives the name in the file of each variable, "" where it has none. A
// file of format 1 has other names for what the compiler makes.
func (s *session) namesIn(f *safetensors.File) map[string]string {
	has := func(name string) bool { _, ok := f.Lookup(name); return ok }
	old := f.Meta[metaFormat] == formatBefore
	names := map[string]string{}
	for _, v := range s.vars {
		name := v.Name
		if n, made := passes.ParseStateName(name); old && made {
			if n.Step == "" && !n.Shared() && !has("step") {
				n.Step = onlyStep(f)
			}
			name = n.Before(has)
		}
		if has(name) {
			names[v.Name] = name
		}
	}
	return names
}

// onlyStep is the step of a file of format 1 that has one, which was numbered
// where something was compiled before it; "" for none, or several.
func onlyStep(f *safetensors.File) string {
	only := ""
	for _, info := range f.Tensors {
		step, ok := strings.CutSuffix(info.Name, ".step")
		if !ok || !strings.HasPrefix(step, "step") {
			continue
		}
		if only != "" {
			return ""
		}
		only = step
	}
	return only
}

// readNames are the tensors of a file that variables read.
func readNames(names map[string]string) map[string]bool {
	read := map[string]bool{}
	for _, name := range names {
		read[name] = true
	}
	return read
}

// refuseUnread refuses a file with training state that no compiled step reads. The
// state of a scaler comes and goes with the policy of its step.
func (s *session) refuseUnread(f *safetensors.File, names map[string]string) error {
	read := readNames(names)
	var lost []string
	for _, info := range f.Tensors {
		if read[info.Name] {
			continue
		}
		n, made := stateName(f, info.Name)
		_, there := s.policies[n.Step]
		if !made || n.Shared() || n.OfScaler() && there {
			continue
		}
		lost = append(lost, ir.Printable(info.Name))
	}
	if len(lost) == 0 {
		return nil
	}
	shown := lost
	if len(shown) > 3 {
		shown = shown[:3]
	}
	return fmt.Errorf("holds training state that no compiled step has (%s; %d in all): compile the step that saved it, under its TrainConfig.Name, or load with ampc.LeaveState() to do without", strings.Join(shown, ", "), len(lost))
}

// stateName takes a name in a file for that of training state; false where it is none.
func stateName(f *safetensors.File, name string) (passes.StateName, bool) {
	if f.Meta[metaFormat] == formatBefore {
		return stateBefore(f, name)
	}
	return passes.ParseStateName(name)
}

func trainingState(f *safetensors.File, name string) bool {
	_, made := stateName(f, name)
	return made
}

// stateBefore takes a name of format 1 for what it is; false where it is no
// training state.
func stateBefore(f *safetensors.File, name string) (passes.StateName, bool) {
	for suffix, kind := range map[string]string{".m": "adam.m", ".v": "adam.v", ".ema": "ema"} {
		if of, ok := strings.CutSuffix(name, suffix); ok {
			if _, has := f.Lookup(of); has {
				return passes.StateName{Kind: kind, Of: of}, true
			}
		}
	}
	if n, ok := passes.ParseStateName(ir.Reserved + strings.TrimPrefix(name, ir.Reserved)); ok {
		return n, true
	}
	if step, rest, ok := strings.Cut(name, ".amp."); ok { // STEP.amp.scale, STEP.amp.LOSS.scale
		return passes.ParseStateName(ir.Reserved + step + "." + rest[strings.LastIndexByte(rest, '.')+1:])
	}
	if rest, ok := strings.CutPrefix(name, ir.Reserved); ok { // amp.LOSS.scale
		return passes.ParseStateName(ir.Reserved + rest[strings.LastIndexByte(rest, '.')+1:])
	}
	return passes.StateName{}, false
}

// header is the metadata of a checkpoint.
func (m *Model) header() map[string]string {
	meta := map[string]string{metaFormat: format, metaModel: m.Graph().Name, metaPolicy: m.session.policyList()}
	for k, v := range m.session.meta {
		meta[userPrefix+k] = v
	}
	return meta
}

// stored is how a variable lies in a checkpoint.
func stored(v lower.Var, write func(io.Writer) error) safetensors.Tensor {
	return safetensors.Tensor{Name: v.Name, DType: safetensors.Named(v.Type.DType.String()), Shape: sizes(v.Type.Shape), Write: write}
}
