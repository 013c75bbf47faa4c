package cpu

import (
	"math"
	"strings"
	"testing"

	"ampc/ir"
	"ampc/lower"
)

// What no machine holds is refused before it is asked for: the process would end.
func TestTooLittleMemory(t *testing.T) {
	if physical() == 0 {
		t.Skip("this system does not say how much memory there is")
	}
	if err := fits(physical()/2, physical()/4); err != nil {
		t.Errorf("three quarters of the memory: %v", err)
	}
	b, err := Open(1)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	s, err := b.NewStore(nil)
	if err != nil {
		t.Fatal(err)
	}
	huge := lower.Var{Name: "w", Kind: ir.Param, Type: ir.T(ir.F32, 1<<40)}
	if err := s.Declare([]lower.Var{huge}); err == nil || !strings.HasPrefix(err.Error(), "cpu: variables: 4096.0 GB are more than") {
		t.Errorf("4 TB of weights: %v", err)
	}
	p := &lower.Program{Name: "p", Target: lower.CPU}
	p.Arenas[lower.WorkArena] = math.MaxInt64 / 2
	if _, err := b.Load(p, s); err == nil || !strings.HasPrefix(err.Error(), "cpu: p: ") {
		t.Errorf("a program that wants more than there is: %v", err)
	}
}
