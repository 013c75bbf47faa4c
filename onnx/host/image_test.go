package host_test

import (
	"bytes"
	"context"
	"errors"
	"image"
	"image/color"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	_ "golang.org/x/image/bmp"
	_ "golang.org/x/image/tiff"
	_ "golang.org/x/image/webp"

	"ampc/internal/onnxmodel"
	"ampc/ir"
	"ampc/onnx"
	"ampc/onnx/host"
)

// decodeImage runs a model on a file.
func decodeImage(t *testing.T, model string, file []byte) (*host.Value, error) {
	t.Helper()
	s := open(t, model)
	in := host.NewTensor(ir.Type{DType: ir.U8, Shape: ir.MakeShape(ir.Dim(len(file)))}, file)
	out, err := s.Run(context.Background(), map[string]*host.Value{s.Inputs()[0].Name: in})
	if err != nil {
		return nil, err
	}
	return out[s.Outputs()[0].Name], nil
}

// A JPEG is what ONNX expects except for the rounding of the inverse cosine transform, which the
// standard leaves open: ±1 in each plane is up to ±2 in a colour.
func TestDecodeJPEG(t *testing.T) {
	list, err := filepath.Glob("testdata/jpeg/*")
	if err != nil || len(list) != 3 {
		t.Fatal(list, err)
	}
	for _, dir := range list {
		var file, want *host.Value
		for name, v := range map[string]**host.Value{"input_0.pb": &file, "output_0.pb": &want} {
			b, err := os.ReadFile(filepath.Join(dir, "test_data_set_0", name))
			if err != nil {
				t.Fatal(err)
			}
			x, _, err := onnx.ParseTensor(b)
			if err != nil {
				t.Fatal(err)
			}
			*v = host.NewTensor(x.Type, x.Bytes())
		}
		got, err := decodeImage(t, filepath.Join(dir, "model.onnx"), file.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if got.Type != want.Type {
			t.Fatalf("%s: %s, want %s", dir, got.Type, want.Type)
		}
		worst, differ := 0.0, 0
		for i, x := range got.Bytes() {
			d := math.Abs(float64(x) - float64(want.Bytes()[i]))
			if worst = max(worst, d); d > 0 {
				differ++
			}
		}
		t.Logf("%s: %d of %d numbers differ, by at most %g", filepath.Base(dir), differ, len(got.Bytes()), worst)
		if worst > 2 {
			t.Errorf("%s: a number differs by %g", dir, worst)
		}
	}
}

// Portable images of all kinds, damaged files, and what is refused.
func TestDecodeImages(t *testing.T) {
	const u8 = 2
	g := onnxmodel.New("images", 20)
	g.Node("ImageDecoder", []string{g.Input("data", u8, "bytes")}, []string{"image"})
	g.Output("image", u8, nil, nil, nil)
	path := filepath.Join(t.TempDir(), "images.onnx")
	if err := g.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	im := image.NewNRGBA(image.Rect(0, 0, 1, 1))
	im.SetNRGBA(0, 0, color.NRGBA{200, 100, 50, 128})
	if err := png.Encode(&file, im); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, file, err string
		want            []byte // nil: no pixels
	}{
		{"alpha is dropped", file.String(), "", []byte{200, 100, 50}},
		{"bits as text", "P1 # two\n2 1\n0 1", "", []byte{255, 255, 255, 0, 0, 0}},
		{"greys as text", "P2 1 1 15 5", "", []byte{85, 85, 85}},
		{"colours as text", "P3\n1 1\n255\n1 2 3\n", "", []byte{1, 2, 3}},
		{"bits", "P4 2 1\n\x40", "", []byte{255, 255, 255, 0, 0, 0}},
		{"greys of 16 bits", "P5 1 1 65535\n\x80\x80", "", []byte{128, 128, 128}},
		{"too few colours", "P6 2 1 255\n\x01\x02\x03\x04", "", nil},
		{"no image", "hello", "", nil},
		{"half an image", file.String()[:file.Len()/2], "", nil},
		{"nothing", "", "", nil},
		{"too large", "P6 100000 200000 255\n", "an image of 100000 by 200000 pixels takes more than the limit", nil},
		{"JPEG 2000", "\x00\x00\x00\x0cjP  \r\n\x87\n", "node 0 image (ImageDecoder): JPEG 2000 is not decoded", nil},
	} {
		got, err := decodeImage(t, path, []byte(c.file))
		if c.err != "" {
			var node *onnx.NodeError
			if err == nil || !errors.As(err, &node) || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, want %s", c.name, err, c.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if !bytes.Equal(got.Bytes(), c.want) || got.Type.Shape.Rank() != 3 || got.Type.Shape.Dim(2) != 3 {
			t.Errorf("%s: %s %v, want %v", c.name, got.Type, got.Bytes(), c.want)
		}
	}
}
