package ampc_test

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"testing"
)

// A snapshot is the model as it was, whatever is trained before it is written.
func TestSnapshotStays(t *testing.T) {
	m, s := eventful(t)
	steps(t, s, 0, 5)
	if err := m.SetMeta("position", "5"); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	direct, late := filepath.Join(dir, "direct"), filepath.Join(dir, "late")
	if err := m.SaveFile(direct); err != nil {
		t.Fatal(err)
	}
	snap, err := m.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	steps(t, s, 5, 12)
	if err := m.SetMeta("position", "12"); err != nil {
		t.Fatal(err)
	}
	if err := snap.WriteFile(late); err != nil {
		t.Fatal(err)
	}
	a, _ := os.ReadFile(direct)
	b, _ := os.ReadFile(late)
	if len(a) == 0 || !bytes.Equal(a, b) {
		t.Error("a snapshot written later differs from the file of its moment")
	}
	if n := snap.Bytes(); n <= 0 || n >= int64(len(b)) {
		t.Errorf("%d bytes of tensors in a file of %d", n, len(b))
	}
	if name := snap.NotFinite(); name != "" {
		t.Errorf("%s is called not finite", name)
	}
	w, err := m.Variable("fc1.w")
	if err != nil {
		t.Fatal(err)
	}
	bad := make([]float32, w.Len())
	bad[w.Len()-1] = float32(math.Inf(-1))
	if err := m.SetVariable("fc1.w", bad); err != nil {
		t.Fatal(err)
	}
	if snap, err = m.Snapshot(); err != nil || snap.NotFinite() != "fc1.w" {
		t.Errorf("not finite: %q (%v), want fc1.w", snap.NotFinite(), err)
	}
}
