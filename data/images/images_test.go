package images

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ampc/data"
)

// picture is the one of bench/torch/resize.py.
func picture(h, w int, bits16 bool) image.Image {
	at := func(x, y, c int) uint8 { return uint8((7*x*x + 13*y*(c+1) + 3*x*y) / 4 % 256) }
	a, b := image.NewNRGBA(image.Rect(0, 0, w, h)), image.NewNRGBA64(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			c := color.NRGBA{at(x, y, 0), at(x, y, 1), at(x, y, 2), 255}
			a.SetNRGBA(x, y, c)
			b.Set(x, y, c)
		}
	}
	if bits16 {
		return b
	}
	return a
}

// Scaling is PyTorch's with antialias=True (bench/torch/resize.py), within the rounding of
// 16 bits, for files of 8 bits, too.
func TestScalingIsPyTorchs(t *testing.T) {
	text, err := os.ReadFile("testdata/resize.txt")
	if err != nil {
		t.Fatal(err)
	}
	worst := map[bool]float64{}
	cases := 0
	for line := range strings.Lines(string(text)) {
		var mode string
		var h, w, oh, ow int
		words := strings.Fields(line)
		if _, err := fmt.Sscan(strings.Join(words[:5], " "), &mode, &h, &w, &oh, &ow); err != nil {
			t.Fatal(err)
		}
		cases++
		for _, deep := range []bool{false, true} {
			got := Options{Height: oh, Width: ow, Bicubic: mode == "bicubic"}.Convert(picture(h, w, deep), nil)
			if len(got) != len(words)-5 {
				t.Fatalf("%d numbers, PyTorch has %d", len(got), len(words)-5)
			}
			for i, x := range got {
				var want float64
				fmt.Sscan(words[5+i], &want)
				worst[deep] = max(worst[deep], math.Abs(float64(x)-want))
			}
		}
	}
	t.Logf("%d cases: worst difference %.2g for 8 bits, %.2g for 16", cases, worst[false], worst[true])
	if cases != 10 || worst[false] > 2e-5 || worst[true] > 2e-5 {
		t.Errorf("%d cases: differences %v", cases, worst)
	}
}

func encodePNG(t *testing.T, m image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Colour models: grey, 16 bits, palettes, transparency, which is left out.
func TestColourModels(t *testing.T) {
	r := image.Rect(0, 0, 1, 1)
	grey, grey16, rgba, deep := image.NewGray(r), image.NewGray16(r), image.NewNRGBA(r), image.NewNRGBA64(r)
	grey.SetGray(0, 0, color.Gray{51})
	grey16.SetGray16(0, 0, color.Gray16{1000})
	rgba.SetNRGBA(0, 0, color.NRGBA{255, 51, 0, 10})
	deep.SetNRGBA64(0, 0, color.NRGBA64{65535, 1000, 0, 10})
	palette := image.NewPaletted(r, color.Palette{color.NRGBA{0, 0, 51, 0}})
	for name, c := range map[string]struct {
		m    image.Image
		want []float32
	}{
		"grey":        {grey, []float32{0.2, 0.2, 0.2}},
		"grey 16":     {grey16, []float32{1000. / 65535, 1000. / 65535, 1000. / 65535}},
		"transparent": {rgba, []float32{1, 0.2, 0}},
		"16 bits":     {deep, []float32{1, 1000. / 65535, 0}},
		"palette":     {palette, []float32{0, 0, 0.2}},
	} {
		got, err := Options{Height: 1, Width: 1}.Decode(encodePNG(t, c.m), nil)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v (%v), want %v", name, got, err, c.want)
		}
	}
	got := Options{Height: 1, Width: 1, Gray: true, Mean: []float64{0.5}, Std: []float64{0.25}}.Convert(rgba, nil)
	if want := ((0.299 + 0.587*0.2) - 0.5) / 0.25; math.Abs(float64(got[0])-want) > 1e-6 {
		t.Errorf("grey of a colour is %v, want %g", got, want)
	}
	cmyk := image.NewCMYK(r)
	cmyk.SetCMYK(0, 0, color.CMYK{0, 255, 127, 51})
	if got := (Options{Height: 1, Width: 1}).Convert(cmyk, nil); math.Abs(float64(got[0])-0.8) > 1e-6 || got[1] != 0 || math.Abs(float64(got[2])-0.8*128/255) > 3e-3 {
		t.Errorf("CMYK is %v", got)
	}
}

// Every orientation shows the same picture.
func TestOrientation(t *testing.T) {
	upside := image.NewGray(image.Rect(0, 0, 16, 24)) // dark except for the upper left quarter
	for y := range 12 {
		for x := range 8 {
			upside.SetGray(x, y, color.Gray{255})
		}
	}
	for k := 1; k <= 8; k++ {
		// The stored image is the one that k turns into upside: the inverse of k.
		inverse := map[int]int{6: 8, 8: 6}[k]
		if inverse == 0 {
			inverse = k
		}
		var b bytes.Buffer
		stored := upright(upside, inverse)
		if err := jpeg.Encode(&b, stored, nil); err != nil {
			t.Fatal(err)
		}
		for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
			file := withEXIF(b.Bytes(), k, order)
			if got := orientation(file); got != k {
				t.Errorf("orientation %d is read as %d", k, got)
			}
			got, err := Options{Height: 24, Width: 16, Gray: true}.Decode(file, nil)
			if err != nil {
				t.Fatal(err)
			}
			for at, want := range map[int]float32{2*16 + 2: 1, 2*16 + 13: 0, 21*16 + 2: 0, 21*16 + 13: 0} {
				if math.Abs(float64(got[at]-want)) > 0.1 {
					t.Errorf("orientation %d: pixel %d is %g, want %g", k, at, got[at], want)
				}
			}
		}
	}
	for _, bad := range [][]byte{nil, {0xff, 0xd8}, {0xff, 0xd8, 0xff, 0xe1, 0, 1}, withEXIF([]byte{0xff, 0xd8}, 9, binary.LittleEndian), []byte("\xff\xd8\xff\xe1\x00\x10Exif\x00\x00II*\x00\xff\xff\xff\xff")} {
		if got := orientation(bad); got != 1 {
			t.Errorf("% x has orientation %d", bad, got)
		}
	}
}

// withEXIF puts an APP1 segment behind the first marker.
func withEXIF(jpeg []byte, k int, order binary.AppendByteOrder) []byte {
	tiff := []byte("II*\x00")
	if order == binary.AppendByteOrder(binary.BigEndian) {
		tiff = []byte("MM\x00*")
	}
	tiff = order.AppendUint32(tiff, 8)
	tiff = order.AppendUint16(tiff, 2)
	for _, e := range [][3]int{{0x0100, 4, 99}, {0x0112, 3, k}} {
		tiff = order.AppendUint16(tiff, uint16(e[0]))
		tiff = order.AppendUint16(tiff, uint16(e[1]))
		tiff = order.AppendUint32(tiff, 1)
		tiff = order.AppendUint16(tiff, uint16(e[2]))
		tiff = append(tiff, 0, 0)
	}
	body := append([]byte("Exif\x00\x00"), tiff...)
	out := append(slices.Clone(jpeg[:2]), 0xff, 0xe1)
	out = binary.BigEndian.AppendUint16(out, uint16(len(body)+2))
	return append(append(out, body...), jpeg[2:]...)
}

func TestFolder(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, b []byte) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	o := Options{Height: 4, Width: 4}
	if _, err := Folder(dir, o); err == nil || !strings.Contains(err.Error(), "no images found") {
		t.Errorf("an empty folder: %v", err)
	}
	m := encodePNG(t, picture(6, 5, false))
	write("dog/old/2.PNG", m)
	write("dog/1.png", m)
	write("cat/1.png", m)
	write("cat/.hidden.png", m)
	write("cat/notes.txt", nil)
	write("empty/notes.txt", nil)
	write("zebra/bad.jpg", m[:60])
	write("zebra/large.png", encodePNG(t, image.NewGray(image.Rect(0, 0, 100, 100))))
	o.MaxPixels = 1000
	s, err := Folder(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(s.Classes(), []string{"cat", "dog", "zebra"}) || s.Len() != 5 || filepath.Base(s.File(2)) != "2.PNG" {
		t.Fatalf("classes %q, %d images", s.Classes(), s.Len())
	}
	for i, want := range []string{"", "", "", "png: ", "100 by 100 pixels, the limit is 1000"} {
		e, err := s.At(i, nil)
		if want == "" {
			if err != nil || len(e["x"].([]float32)) != 48 || e["y"] != []int32{0, 1, 1}[i] {
				t.Errorf("image %d: %v, %v", i, e["y"], err)
			}
			continue
		}
		bad := (*data.BadRecord)(nil)
		if !errors.As(err, &bad) || bad.Path != s.File(i) || !strings.Contains(err.Error(), want) {
			t.Errorf("image %d: %v, want %s", i, err, want)
		}
	}
	for want, o := range map[string]Options{
		"Height is 0":        {Width: 1},
		"no 5x4 can be cut":  {Height: 5, Width: 4, Shorter: 4},
		"exclude each other": {Height: 1, Width: 1, Shorter: 4, RandomArea: 0.5},
		"want 1 numbers":     {Height: 1, Width: 1, Gray: true, Mean: ImageNetMean},
		"no deviation of 0":  {Height: 1, Width: 1, Std: []float64{1, 0, 1}},
		"RandomArea up to 1": {Height: 1, Width: 1, RandomArea: 2},
	} {
		if _, err := Folder(dir, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
		if _, err := s.With(o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}

// Cuts: the middle without draws, else a place that the draws give; what is cut out is
// part of the picture, mirrored or not.
func TestCropAndFlip(t *testing.T) {
	m := picture(10, 20, false)
	whole := Options{Height: 10, Width: 20}.Convert(m, nil)
	o := Options{Height: 6, Width: 8, Shorter: 10, RandomCrop: true, Flip: true}
	same := func(got []float32, top, left int, mirror bool) bool {
		for i, x := range got {
			c, y, at := i/48, i/8%6, i%8
			if mirror {
				at = 7 - at
			}
			if x != whole[c*200+(top+y)*20+left+at] {
				return false
			}
		}
		return true
	}
	if !same(o.Convert(m, nil), 2, 6, false) {
		t.Error("without draws it is not the middle")
	}
	seen := map[[3]int]bool{}
	for k := range uint64(200) {
		got := o.Convert(m, rand.New(rand.NewPCG(1, k)))
		if !slices.Equal(got, o.Convert(m, rand.New(rand.NewPCG(1, k)))) {
			t.Fatal("the same draws give other images")
		}
		for top := range 5 {
			for left := range 13 {
				for flip := range 2 {
					if same(got, top, left, flip == 1) {
						seen[[3]int{top, left, flip}] = true
					}
				}
			}
		}
	}
	if len(seen) < 80 {
		t.Errorf("200 draws gave %d of 130 cuts", len(seen))
	}
	o = Options{Height: 5, Width: 5, RandomArea: 0.08}
	if slices.Equal(o.Convert(m, rand.New(rand.NewPCG(1, 1))), o.Convert(m, rand.New(rand.NewPCG(1, 2)))) {
		t.Error("two draws give one part")
	}
	if !slices.Equal(o.Convert(m, nil), Options{Height: 5, Width: 5}.Convert(m, nil)) {
		t.Error("without draws it is not the whole")
	}
}

// Whatever a file holds: an image of the wanted size, or an error.
func FuzzDecode(f *testing.F) {
	var b bytes.Buffer
	jpeg.Encode(&b, picture(5, 7, false), nil)
	f.Add(withEXIF(b.Bytes(), 6, binary.BigEndian))
	b.Reset()
	png.Encode(&b, picture(5, 7, true))
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := Options{Height: 3, Width: 2, MaxPixels: 1 << 16}.Decode(b, nil)
		if err == nil && len(x) != 18 {
			t.Errorf("%d numbers", len(x))
		}
	})
}

// The share of scaling in reading a photograph.
func BenchmarkDecode(b *testing.B) {
	var file bytes.Buffer
	if err := jpeg.Encode(&file, picture(375, 500, false), nil); err != nil {
		b.Fatal(err)
	}
	m, err := jpeg.Decode(bytes.NewReader(file.Bytes()))
	if err != nil {
		b.Fatal(err)
	}
	o := Options{Height: 224, Width: 224, Shorter: 256}
	b.Run("file", func(b *testing.B) {
		for b.Loop() {
			if _, err := o.Decode(file.Bytes(), nil); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("scaling", func(b *testing.B) {
		for b.Loop() {
			o.Convert(m, nil)
		}
	})
}
