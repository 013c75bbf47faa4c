package fit_test

import (
	"encoding/binary"
	"encoding/csv"
	"encoding/json"
	"errors"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"ampc/fit"
)

// The checksum that the test compares with is that of RFC 3720, appendix B.4.
func TestCRC32C(t *testing.T) {
	ascending := make([]byte, 32)
	for i := range ascending {
		ascending[i] = byte(i)
	}
	for text, want := range map[string]uint32{"123456789": 0xe3069283, string(make([]byte, 32)): 0x8a9136aa, strings.Repeat("\xff", 32): 0x62a8ab43, string(ascending): 0x46dd794e} {
		if got := crc32.Checksum([]byte(text), crc32.MakeTable(crc32.Castagnoli)); got != want {
			t.Errorf("%x: %x, want %x", text, got, want)
		}
	}
}

// An event file read back by other code: Google's decoder of the wire format, and the
// record layout as TensorFlow's record_writer describes it.
func TestTensorBoard(t *testing.T) {
	dir := t.TempDir()
	at := time.UnixMicro(1_700_000_000_250_000)
	for _, from := range []int{0, 1} {
		l := fit.TensorBoard(dir)
		if err := l.Begin([]string{"loss", "eval/accuracy"}, from); err != nil {
			t.Fatal(err)
		}
		row := fit.Row{Step: from + 1, Time: at, Values: map[string]float64{"loss": 0.1, "unknown": 3}}
		if from == 1 {
			row.Values["eval/accuracy"] = 0.75
		}
		if err := l.Write(row); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "events.out.tfevents.*"))
	if err != nil || len(files) != 2 {
		t.Fatalf("files %q (%v)", files, err)
	}
	// Every event file of TensorFlow begins so: 24 bytes of data, the checksum of that length.
	if head := read(t, files[0])[:12]; head != "\x18\x00\x00\x00\x00\x00\x00\x00\xa3\x7f\x4b\x22" {
		t.Errorf("the file begins with % x", head)
	}
	first, second := events(t, files[0]), events(t, files[1])
	if len(first) != 2 || first[0].version != "brain.Event:2" || first[1].step != 1 || first[1].time != 1_700_000_000.25 ||
		len(first[1].values) != 1 || first[1].values["loss"] != 0.1 {
		t.Errorf("the first file holds %+v", first)
	}
	if len(second) != 3 || !second[1].restart || second[1].step != 2 || second[2].step != 2 || second[2].values["eval/accuracy"] != 0.75 {
		t.Errorf("the second file holds %+v", second)
	}
}

type event struct {
	time    float64
	step    uint64
	version string
	restart bool
	values  map[string]float32
}

// events reads a file, checksums included.
func events(t *testing.T, path string) (list []event) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	check := func(b []byte, want uint32) {
		c := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
		if got := uint32(uint64(c>>15|c<<17) + 0xa282ead8); got != want {
			t.Fatalf("checksum %x, want %x", want, got)
		}
	}
	for len(b) > 0 {
		n := binary.LittleEndian.Uint64(b)
		check(b[:8], binary.LittleEndian.Uint32(b[8:]))
		body := b[12 : 12+n]
		check(body, binary.LittleEndian.Uint32(b[12+n:]))
		b = b[16+n:]
		e := event{values: map[string]float32{}}
		fields(t, body, func(num protowire.Number, x uint64, sub []byte) {
			switch num {
			case 1:
				e.time = math.Float64frombits(x)
			case 2:
				e.step = x
			case 3:
				e.version = string(sub)
			case 5:
				fields(t, sub, func(_ protowire.Number, _ uint64, value []byte) {
					var tag string
					fields(t, value, func(num protowire.Number, x uint64, sub []byte) {
						if num == 1 {
							tag = string(sub)
						} else {
							e.values[tag] = math.Float32frombits(uint32(x))
						}
					})
				})
			case 7:
				fields(t, sub, func(num protowire.Number, x uint64, _ []byte) { e.restart = num == 1 && x == 1 })
			default:
				t.Errorf("field %d", num)
			}
		})
		list = append(list, e)
	}
	return list
}

func fields(t *testing.T, b []byte, f func(num protowire.Number, x uint64, sub []byte)) {
	t.Helper()
	for len(b) > 0 {
		num, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		b = b[n:]
		var x uint64
		var sub []byte
		switch kind {
		case protowire.VarintType:
			x, n = protowire.ConsumeVarint(b)
		case protowire.Fixed64Type:
			x, n = protowire.ConsumeFixed64(b)
		case protowire.Fixed32Type:
			var y uint32
			y, n = protowire.ConsumeFixed32(b)
			x = uint64(y)
		default:
			sub, n = protowire.ConsumeBytes(b)
		}
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		f(num, x, sub)
		b = b[n:]
	}
}

// Rows that stand behind the checkpoint, and half a line of a run that was killed, go.
func TestLogsContinue(t *testing.T) {
	for name, make := range map[string]func(string) fit.Log{"csv": fit.CSV, "jsonl": fit.JSONLines} {
		path := filepath.Join(t.TempDir(), "log")
		write := func(from int, steps ...int) {
			l := make(path)
			if err := l.Begin([]string{"loss", "nan"}, from); err != nil {
				t.Fatal(err)
			}
			for _, s := range steps {
				if err := l.Write(fit.Row{Step: s, Values: map[string]float64{"loss": float64(s) / 4, "nan": math.NaN()}}); err != nil {
					t.Fatal(err)
				}
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
		write(0, 1, 2, 3, 4)
		f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		f.WriteString(`{"step":5,"ep`)
		f.Close()
		write(2, 3)
		want := "step,epoch,loss,nan\n1,0,0.25,\n2,0,0.5,\n3,0,0.75,\n"
		if name == "jsonl" {
			want = `{"step":1,"epoch":0,"loss":0.25,"nan":null}` + "\n" + `{"step":2,"epoch":0,"loss":0.5,"nan":null}` + "\n" + `{"step":3,"epoch":0,"loss":0.75,"nan":null}` + "\n"
		}
		if got := read(t, path); got != want {
			t.Errorf("%s holds\n%s", name, got)
		}
	}
}

// A row read back is the row; older logs with true, false and null are read, too.
func TestRowsAreReadBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.jsonl")
	l := fit.JSONLines(path)
	if err := l.Begin([]string{"loss", "worst", "none"}, 0); err != nil {
		t.Fatal(err)
	}
	want := fit.Row{Step: 3, Epoch: 1, Values: map[string]float64{"loss": 0.1}, Words: map[string]string{"worst": `a "b", c`}}
	if err := errors.Join(l.Write(want), l.Close()); err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(want)
	if text := strings.TrimSpace(read(t, path)); err != nil || text != string(again) {
		t.Errorf("the log has %s, Row as JSON is %s (%v)", text, again, err)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString(`{"step":4,"loss":null,"skipped":true,"held_out":2}` + "\n" + `{"step":5,"lo`)
	f.Close()
	rows, damaged, err := fit.ReadJSONLines(path)
	if err != nil || len(rows) != 2 || damaged != 3 || !reflect.DeepEqual(rows[0], want) {
		t.Fatalf("%v, line %d (%v)", rows, damaged, err)
	}
	if v := rows[1].Values; rows[1].Step != 4 || !math.IsNaN(v["loss"]) || v["skipped"] != 1 || v["held_out"] != 2 {
		t.Errorf("%v", rows[1])
	}
}

// Words with commas, quotes and line ends stay one cell.
func TestWordsInTables(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.csv")
	l := fit.CSV(path)
	words := map[string]string{"a": "x,y", "b": `say "no"`, "c": "two\nlines"}
	if err := errors.Join(l.Begin([]string{"a", "b", "c"}, 0), l.Write(fit.Row{Step: 1, Words: words}), l.Close()); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(strings.NewReader(read(t, path))).ReadAll()
	if err != nil || !reflect.DeepEqual(rows[1], []string{"1", "0", words["a"], words["b"], words["c"]}) {
		t.Errorf("%q (%v)", rows, err)
	}
}
