package ampc

import (
	"bytes"
	"context"
	"encoding/gob"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"ampc/ir"
	"ampc/passes"
	"ampc/runtime"
	"ampc/runtime/doctor"
	"ampc/world"
)

// replayOfRanks is the case of the last step of all ranks: each rank replays the step of all, with
// the feeds of all, and comes to the same answer. It is a call of all ranks.
func (s *Step) replayOfRanks() (*doctor.Case, func(), error) {
	if s.allRanks == nil {
		g, err := passes.AllRanks(s.graph)
		if err != nil {
			return nil, nil, fmt.Errorf("diagnose: %w", err)
		}
		s.allRanks = g
	}
	feeds, err := s.feedsOfRanks()
	if err != nil {
		return nil, nil, fmt.Errorf("diagnose: %w", err)
	}
	c := s.replay(feeds)
	c.Graph = s.allRanks
	if s.config.Parallel.Message.Low() {
		c.Notes = append(c.Notes, "messages between ranks are f32 in the replay")
	}
	var end func()
	if c.State, end, err = s.lastingState(); err != nil {
		return nil, nil, err
	}
	if err := s.partsOfRanks(c.State); err != nil {
		end()
		return nil, nil, err
	}
	return c, end, nil
}

// partsOfRanks replaces this rank's parts of sharded variables by those of all ranks.
func (s *Step) partsOfRanks(state map[string][]byte) error {
	for _, v := range s.program.Vars {
		whole, part := wholeOf(v)
		if !part || !lasting(v) {
			continue
		}
		data, err := s.model.session.gather(context.Background(), whole.Name, whole.Type.Bytes())
		if err != nil {
			return fmt.Errorf("diagnose: %w", err)
		}
		delete(state, v.Name)
		p := s.model.session.parts[whole.Name]
		for r := range s.world.Size() {
			state[passes.OfRank(r, v.Name)] = p.cutFor(r, data)
		}
	}
	return nil
}

// fedTensor is a tensor of a feed as ranks send it.
type fedTensor struct {
	Name, Type string
	Data       []byte
}

// feedsOfRanks are the feeds of the last step of all ranks, by the names that inputs have in the step
// of all.
func (s *Step) feedsOfRanks() ([]runtime.Feed, error) {
	var own bytes.Buffer
	list := make([][]fedTensor, len(s.last.feeds))
	for i, f := range s.last.feeds {
		for _, name := range slices.Sorted(maps.Keys(f)) {
			list[i] = append(list[i], fedTensor{name, f[name].Type.String(), f[name].Data})
		}
	}
	if err := gob.NewEncoder(&own).Encode(list); err != nil {
		return nil, err
	}
	sizes, err := agree(s.world, "Diagnose (a call of all ranks)", uint64(own.Len()), nil)
	if err != nil {
		return nil, err
	}
	each := int(slices.Max(sizes))
	all := make([]byte, each*len(sizes))
	m := &world.Message{Name: "feeds to diagnose", Op: world.Gather, DType: ir.U8, Wire: ir.F32, In: [][]byte{append(own.Bytes(), make([]byte, each-own.Len())...)}, Out: [][]byte{all}}
	if err := s.world.Start(m); err != nil {
		return nil, err
	}
	if err := s.world.Wait(context.Background(), m); err != nil {
		return nil, err
	}
	feeds := make([]runtime.Feed, len(list))
	for r, n := range sizes {
		if err := s.takeFeeds(feeds, r, all[r*each:][:n]); err != nil {
			return nil, err
		}
	}
	return feeds, nil
}

// takeFeeds adds what rank r was fed.
func (s *Step) takeFeeds(feeds []runtime.Feed, r int, data []byte) error {
	var list [][]fedTensor
	if err := gob.NewDecoder(bytes.NewReader(data)).Decode(&list); err != nil {
		return err
	}
	if len(list) != len(feeds) {
		return fmt.Errorf("rank %d took %d micro-batches and this one %d: give all ranks as many", r, len(list), len(feeds))
	}
	for i, tensors := range list {
		if feeds[i] == nil {
			feeds[i] = runtime.Feed{}
		}
		for _, x := range tensors {
			own, known := s.last.feeds[i][x.Name]
			if !known || own.Type.String() != x.Type {
				return fmt.Errorf("rank %d was fed %s as %s and this one as %s: give all ranks batches of one size", r, x.Name, x.Type, own.Type)
			}
			feeds[i][passes.OfRank(r, x.Name)] = runtime.Tensor{Type: own.Type, Data: x.Data}
		}
	}
	return nil
}

var rankPrefix = regexp.MustCompile(`\brank([0-9]+)/`)

// namedByRank is a diagnosis of the step of all ranks with the names of one rank, and a note of
// which.
func namedByRank(d *doctor.Diagnosis) *doctor.Diagnosis {
	if m := rankPrefix.FindStringSubmatch(d.Node); m != nil {
		d.Notes = append(d.Notes, "on rank "+m[1])
	}
	for _, text := range []*string{&d.Node, &d.Of, &d.Scope, &d.From, &d.Why, &d.Advice} {
		*text = rankPrefix.ReplaceAllString(*text, "")
	}
	for _, x := range append([]*doctor.Range{d.Output, d.Wide, d.BF16}, pointers(d.Inputs)...) {
		if x != nil {
			x.Name = rankPrefix.ReplaceAllString(x.Name, "")
		}
	}
	for i := range d.Remedies {
		r := &d.Remedies[i]
		r.Widen = rankPrefix.ReplaceAllString(r.Widen, "")
		for _, list := range []*[]string{&r.Keep, &r.Unpin, &r.LeaveOut} {
			*list = ofAnyRank(*list)
		}
	}
	for i, n := range d.Notes {
		d.Notes[i] = rankPrefix.ReplaceAllString(n, "")
	}
	if d.Before != nil {
		namedByRank(d.Before)
	}
	return d
}

func pointers[T any](list []T) (all []*T) {
	for i := range list {
		all = append(all, &list[i])
	}
	return all
}

// ofAnyRank are names without their ranks, each once, in the order of names.
func ofAnyRank(names []string) (list []string) {
	for _, n := range names {
		if n = rankPrefix.ReplaceAllString(n, ""); !slices.Contains(list, n) {
			list = append(list, n)
		}
	}
	return list
}
