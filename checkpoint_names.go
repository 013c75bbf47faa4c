package ampc

import (
	"fmt"
	"strings"

	"ampc/internal/safetensors"
	"ampc/ir"
	"ampc/passes"
)

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

// homeless refuses a file with training state that no compiled step reads. The
// state of a scaler comes and goes with the policy of its step.
func (s *session) homeless(f *safetensors.File, names map[string]string) error {
	read := readNames(names)
	var lost []string
	for _, info := range f.Tensors {
		if read[info.Name] {
			continue
		}
		n, made := passes.ParseStateName(info.Name)
		if f.Meta[metaFormat] == formatBefore {
			n, made = stateBefore(f, info.Name)
		}
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
