package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"ampc"
	"ampc/internal/file"
	"ampc/internal/safetensors"
	"ampc/ir"
	"ampc/ir/eval"
	"ampc/models"
)

// settings are the settings of a run that its checkpoints store. --resume uses them unless the
// command line overrides them.
type settings struct {
	Policy      string   `json:"policy"`
	PolicyText  string   `json:"policy_text"` // the policy's text, because a file may change
	Scaler      string   `json:"scaler,omitempty"`
	InitScale   float64  `json:"init_scale,omitempty"`
	GrowthEvery int64    `json:"growth_every,omitempty"`
	Rate        float64  `json:"lr,omitempty"`
	Steps       int      `json:"steps"`
	Micro       int      `json:"micro"`
	Slices      int      `json:"slices,omitempty"`
	Shard       bool     `json:"shard,omitempty"`
	SyncNorms   bool     `json:"sync_norms,omitempty"`
	Message     string   `json:"message,omitempty"`
	Memory      string   `json:"memory,omitempty"`
	Chunks      int      `json:"chunks,omitempty"`
	Text        []string `json:"text,omitempty"`
	Data        []string `json:"data,omitempty"`
	HeldOut     string   `json:"held_out,omitempty"`
	Losses      []string `json:"losses,omitempty"`
	Dims        []string `json:"dims,omitempty"`
	Optimizer   string   `json:"optimizer,omitempty"`
	Digest      string   `json:"digest"` // digest of the data
}

func (t *trainer) settings() (string, error) {
	f := t.flags
	s := settings{Policy: f.policy, PolicyText: t.policy.String(), Scaler: f.scaler, InitScale: f.initScale, GrowthEvery: f.growthEvery, Rate: f.rate,
		Steps: f.steps, Micro: f.micro, Slices: f.slices, Shard: f.shard, SyncNorms: f.syncNorms, Message: f.message, Memory: f.memory, Chunks: f.chunks, Text: absolute(f.text...), Data: absolute(f.data...), HeldOut: strings.Join(absolute(f.heldOut), ""), Losses: f.losses, Dims: f.dims, Optimizer: f.optimizer, Digest: t.digest}
	text, err := json.Marshal(s)
	return string(text), err
}

// absolute makes paths absolute.
func absolute(paths ...string) []string {
	var out []string
	for _, p := range paths {
		if full, err := filepath.Abs(p); err == nil && p != "" {
			p = full
		}
		out = append(out, p)
	}
	return out
}

// resumeNewest is the value of --resume without an argument.
const resumeNewest = "newest"

// origin is the checkpoint from which a run continues.
type origin struct {
	path     string
	note     string // error of a newer checkpoint that could not be read
	spec     string
	seed     int64
	done     int // number of steps
	vocab    string
	settings settings
}

// original opens the checkpoint that --resume names: a file, or the newest one of a folder.
func original(path string) (*origin, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, file.Error(path, err)
	}
	if !info.IsDir() {
		return readOrigin(path)
	}
	var failed error
	for _, name := range checkpoints {
		o, err := readOrigin(filepath.Join(path, name))
		if err == nil && failed != nil {
			o.note = failed.Error()
		}
		if err == nil {
			return o, nil
		}
		if !errors.Is(err, os.ErrNotExist) && failed == nil {
			failed = err
		}
	}
	if failed == nil {
		failed = fmt.Errorf("%s: no checkpoint there to resume", path)
	}
	return nil, failed
}

func readOrigin(path string) (*origin, error) {
	f, err := safetensors.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	o := &origin{path: path, spec: f.Meta["user.spec"], vocab: f.Meta["user.vocab"]}
	o.seed, err = strconv.ParseInt(f.Meta["user.seed"], 10, 64)
	if o.done, _ = strconv.Atoi(f.Meta["user.steps"]); err != nil || o.done < 1 || o.spec == "" {
		return nil, fmt.Errorf("%s: not a checkpoint of ampc train", path)
	}
	if text, ok := f.Meta["user.run"]; ok { // older checkpoints do not have it
		if err := json.Unmarshal([]byte(text), &o.settings); err != nil {
			return nil, fmt.Errorf("%s: the settings of the run are damaged", path)
		}
	}
	return o, nil
}

// inheritSettings takes from the checkpoint what the command line does not set, and returns its
// model. It refuses a change that a continued run does not support.
func (f *trainFlags) inheritSettings(o *origin, spec string, given func(flag string) bool) (string, error) {
	if spec != "" {
		same, err := sameModel(spec, o.spec)
		if err != nil {
			return "", err
		}
		if !same {
			return "", usagef("%s was written by %s: give that MODEL, or none", o.path, o.spec)
		}
	}
	if given("seed") && f.seed != o.seed {
		return "", usagef("--seed %d: the run of %s continues with its own seed, %d: leave --seed out", f.seed, o.path, o.seed)
	}
	f.from, f.seed = o, o.seed
	s := o.settings
	if s.Steps == 0 { // a checkpoint of an older version
		return o.spec, nil
	}
	f.newData = given("text") || given("data") || given("held-out")
	if !given("text") && !given("data") {
		f.text, f.data = s.Text, s.Data
	}
	f.newScale = given("scaler") || given("init-scale") || given("policy")
	if !f.newScale {
		f.scaler, f.initScale = s.Scaler, s.InitScale
	}
	f.newRate = given("lr")
	for flag, take := range map[string]func(){
		"loss":         func() { f.losses = s.Losses },
		"dim":          func() { f.dims = s.Dims },
		"optimizer":    func() { f.optimizer = s.Optimizer },
		"held-out":     func() { f.heldOut = s.HeldOut },
		"growth-every": func() { f.growthEvery = s.GrowthEvery },
		"policy":       func() { f.policy, f.policyText = s.Policy, s.PolicyText },
		"lr":           func() { f.rate = s.Rate },
		"micro":        func() { f.micro = s.Micro },
		"slices":       func() { f.slices = s.Slices },
		"shard":        func() { f.shard = s.Shard },
		"sync-norms":   func() { f.syncNorms = s.SyncNorms },
		"message":      func() { f.message = s.Message },
		"chunks":       func() { f.chunks = s.Chunks },
		"memory":       func() { f.memory = s.Memory },
		"steps":        func() { f.steps = s.Steps },
	} {
		if !given(flag) {
			take()
		}
	}
	return o.spec, nil
}

// sameModel reports whether spec names the same model as whole, in which every option that depends
// on the data is spelled out.
func sameModel(spec, whole string) (bool, error) {
	if !strings.HasPrefix(whole, "zoo:") {
		return absolute(spec)[0] == whole, nil
	}
	name, query, _ := strings.Cut(strings.TrimPrefix(spec, "zoo:"), "?")
	whole = strings.TrimPrefix(whole, "zoo:")
	if wholeName, _, _ := strings.Cut(whole, "?"); name != wholeName {
		return false, nil
	}
	was, err := models.Open(whole)
	if err != nil {
		return false, err
	}
	is, err := models.Open(whole + "&" + query)
	if err != nil {
		return false, err
	}
	return maps.Equal(was.Options, is.Options), nil
}

// sameData returns an error if the data has changed and the command line does not name it.
func (t *trainer) sameData() error {
	f := t.flags
	if f.from == nil || f.from.settings.Digest == "" || f.from.settings.Digest == t.digest {
		return nil
	}
	if !f.newData {
		return fmt.Errorf("%s: has changed since %s was written: give it with --text or --data to continue with what it holds now", t.source, f.from.path)
	}
	t.notes = append(t.notes, "training continues with other data than before")
	return nil
}

// load sets the trainer to the state in the checkpoint.
func (t *trainer) load() error {
	f := t.flags
	path := f.from.path
	if err := t.model.LoadFile(path); err != nil {
		return err
	}
	for key, set := range map[string]func(int64){
		"position": func(n int64) { t.position = n },
		"steps":    func(n int64) { t.done = int(n) },
		"skipped":  func(n int64) { t.skipped = int(n) },
	} {
		n, err := strconv.ParseInt(t.model.Meta(key), 10, 64)
		if err != nil {
			return fmt.Errorf("%s: not a checkpoint of ampc train: metadata %q is %q", path, key, t.model.Meta(key))
		}
		set(n)
	}
	if f.newScale {
		if err := t.renewScale(); err != nil {
			return err
		}
		t.notes = append(t.notes, "the loss scale starts anew")
	}
	if f.newRate {
		if err := t.step.SetLR(f.rate); err != nil {
			return err
		}
	}
	if err := t.curves.load(filepath.Dir(path), t.done); err != nil {
		return err
	}
	for _, p := range t.curves.points {
		t.recordScale(p.scale)
	}
	if f.newScale {
		t.scale = 0 // the step from the old rule to the new one is neither a backoff nor a growth
	}
	return nil
}

// renewScale resets the loss scale and its counters to their initial values.
func (t *trainer) renewScale() error {
	for _, v := range t.step.Program().Vars {
		if v.Role() != ir.RoleScale && v.Role() != "scaler" {
			continue
		}
		x, err := eval.InitVar(&ir.Value{Name: v.Name, Type: v.Type, Kind: v.Kind, Init: v.Init, Attr: v.Attr}, t.flags.seed)
		if err != nil {
			return err
		}
		if err := t.model.SetVariable(v.Name, ampc.HostTensor{Type: ampc.TypeFromIR(v.Type), Bytes: x.Bytes()}); err != nil {
			return err
		}
	}
	return nil
}

// loadPolicy returns the policy of the flags. A continued run uses the text in its checkpoint,
// because the policy file may have changed.
func (f *trainFlags) loadPolicy() (ampc.Policy, error) {
	p, err := ampc.PolicyNamed(f.policy)
	if f.policyText == "" || err == nil && p.String() == f.policyText {
		return loadPolicy(f.policy)
	}
	return ampc.ParsePolicy(f.policy, []byte(f.policyText))
}
