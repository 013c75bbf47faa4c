package arch_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"ampc"
	"ampc/internal/trial"
	"ampc/pretrained"
	"ampc/weights"
)

const testdataBERT = "internal/arch/testdata/outside/bert/main.go"

// A program of a stranger's, of less than 80 lines, fine-tunes a BERT on
// labelled text: here a small one with random weights, on texts whose words say their
// class.
func TestOutsideBERT(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs a program: skipped by -short")
	}
	src, err := os.ReadFile(testdataBERT)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(src), "\n"); n >= 80 {
		t.Errorf("the program has %d lines", n)
	}
	dir := outside(t)
	trial.WriteFile(t, filepath.Join(dir, "main.go"), string(src))
	folder, data, out := smallBERT(t), filepath.Join(dir, "text.tsv"), filepath.Join(dir, "out.safetensors")
	trial.WriteFile(t, data, labelledTexts(400))
	cmd := exec.Command("go", "run", "-mod=mod", ".", folder, data, out)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "GOPROXY=off")
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	var accuracy float64
	said := regexp.MustCompile(`accuracy (\S+)`).FindStringSubmatch(string(text))
	if said == nil {
		t.Fatalf("it printed %s", text)
	}
	fmt.Sscan(said[1], &accuracy)
	if accuracy < 0.9 || !strings.Contains(string(text), "fresh: classifier.weight, classifier.bias") {
		t.Errorf("it printed %s", text)
	}
	f, err := weights.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got := len(f.Tensors()); got != 41 {
		t.Errorf("%d tensors are saved", got)
	}
}

var signs = [2][]string{{"bad", "poor", "awful", "sad"}, {"good", "fine", "great", "happy"}}

// smallBERT writes a folder as a published model has one.
func smallBERT(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	words := append([]string{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "a", "film", "book", "was", "is", "and", "very", "."}, append(signs[0], signs[1]...)...)
	trial.WriteFile(t, filepath.Join(dir, "vocab.txt"), strings.Join(words, "\n")+"\n")
	config, err := json.Marshal(map[string]any{"model_type": "bert", "vocab_size": len(words), "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
		"intermediate_size": 64, "max_position_embeddings": 32, "type_vocab_size": 2, "hidden_act": "gelu", "layer_norm_eps": 1e-12})
	if err != nil {
		t.Fatal(err)
	}
	trial.WriteFile(t, filepath.Join(dir, "config.json"), string(config))
	c, err := pretrained.ReadBERT(dir)
	if err != nil {
		t.Fatal(err)
	}
	m := ampc.New("bert", ampc.Seed(5))
	defer m.Close()
	if _, err := m.Infer(ampc.InferConfig{}, c.Pooled(m, pretrained.BERTInput{IDs: m.Input("ids", ampc.I32, 1, 8)})); err != nil {
		t.Fatal(err)
	}
	if err := weights.Save(m, filepath.Join(dir, "model.safetensors")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// labelledTexts are n lines of a class and a text.
func labelledTexts(n int) string {
	r := rand.New(rand.NewPCG(1, 1))
	var b strings.Builder
	for range n {
		class := r.IntN(2)
		sign := signs[class][r.IntN(4)]
		fmt.Fprintf(&b, "%d\tThe %s was %s%s.\n", class, []string{"film", "book"}[r.IntN(2)], []string{"", "very "}[r.IntN(2)], sign)
	}
	return b.String()
}
