package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// output runs an example and returns its lines and, for each, its numbers.
func output(t *testing.T, name string) (lines []string, numbers [][]float64) {
	t.Helper()
	var b strings.Builder
	if err := run([]string{name}, &b); err != nil {
		t.Fatal(err)
	}
	lines = strings.Split(strings.TrimSpace(b.String()), "\n")
	number := regexp.MustCompile(`-?\b\d+(\.\d+)?(e[+-]\d+)?\b|NaN`)
	for _, l := range lines {
		var row []float64
		for _, s := range number.FindAllString(l, -1) {
			x, err := strconv.ParseFloat(s, 64)
			if err != nil {
				t.Fatalf("%q: %v", l, err)
			}
			row = append(row, x)
		}
		numbers = append(numbers, row)
	}
	return lines, numbers
}

// last is the last number of a row.
func last(row []float64) float64 { return row[len(row)-1] }

// Every example runs; each is checked for the fact that it is there to show.
func TestExamples(t *testing.T) {
	checks := map[string]func(lines []string, n [][]float64) error{
		"mlp": func(_ []string, n [][]float64) error { return below(last(n[len(n)-1]), 0.05) },
		"gpt": func(_ []string, n [][]float64) error { return below(n[len(n)-1][1], 1.2) },
		"oneline": func(_ []string, n [][]float64) error {
			return within(n[0][len(n[0])-2], n[1][len(n[1])-2], 0.05)
		},
		"clip": func(_ []string, n [][]float64) error {
			// norm 0.05: step = gradient · 0.05/norm, the learning rate being 1
			if err := within(n[0][2], n[0][1]*0.05/n[0][3], 0.01); err != nil {
				return err
			}
			return below(n[1][2], 0.00101)
		},
		"micro": func(_ []string, n [][]float64) error {
			for _, row := range n {
				if err := within(row[1], row[2], 1e-3); err != nil {
					return err
				}
			}
			return nil
		},
		"accumulate": func(_ []string, n [][]float64) error { return below(last(n[2]), last(n[0])) },
		"gan":        func(_ []string, n [][]float64) error { return within(last(n[len(n)-1]), 3, 0.25) },
		"penalty":    func(_ []string, n [][]float64) error { return below(last(n[1]), last(n[0])*0.7) },
		"customop":   func(_ []string, n [][]float64) error { return below(n[2][1], 2) },
		"eval":       func(_ []string, n [][]float64) error { return below(n[2][1], n[0][1]) },
		"ema": func(lines []string, n [][]float64) error {
			if err := below(n[4][2], n[4][1]); err != nil {
				return err
			}
			return contains(lines[5], "the same loss: true")
		},
		"export": func(lines []string, _ [][]float64) error { return contains(lines[0], "graph @ranker {") },
		"serve": func(lines []string, _ [][]float64) error {
			return contains(lines[0], "48 rows of 24 requests: 1 different")
		},
		"explain": func(lines []string, _ [][]float64) error { return contains(strings.Join(lines, "\n"), "(own.go:") },
		"replay":  func(lines []string, _ [][]float64) error { return contains(lines[0], "skipped true") },
		"resume":  func(lines []string, _ [][]float64) error { return contains(lines[0], "agree bit for bit") },
		"nan": func(lines []string, _ [][]float64) error {
			return contains(strings.Join(lines, "\n"), "not a precision problem: %scaled = div (forward, at nan.go:")
		},
		"onlymixed": func(lines []string, _ [][]float64) error {
			if err := contains(lines[3], "skipped true"); err != nil {
				return err
			}
			if err := contains(lines[4], "forward overflow: %ff.act = relu"); err != nil {
				return err
			}
			return contains(lines[len(lines)-1], "skipped false")
		},
		"whichlayer": func(lines []string, _ [][]float64) error {
			return contains(lines[1], "forward overflow: %h7.gelu = gelu")
		},
		"adamhalf": func(lines []string, _ [][]float64) error {
			if err := contains(strings.Join(lines, "\n"), "the constant 1e-08 that affine adds is 0 in f16"); err != nil {
				return err
			}
			return contains(lines[len(lines)-1], "skipped false")
		},
		"batchnorm": func(lines []string, n [][]float64) error {
			if err := below(0.3, last(n[5])-1); err != nil { // around 30: the deviation is off by more
				return err
			}
			if err := within(n[7][0], 1, 0.01); err != nil {
				return err
			}
			return contains(strings.Join(lines, "\n"), "forward overflow: %bn.squares = square")
		},
		"scalednorm": func(lines []string, n [][]float64) error {
			if err := within(n[1][0]/last(n[0]), 65536, 0.001); err != nil {
				return err
			}
			return contains(lines[2], "carries the loss scale amp.scale; unscale it first")
		},
		"scaleroff": func(_ []string, n [][]float64) error {
			if err := below(last(n[1]), 2*last(n[0])+0.02); err != nil {
				return err
			}
			return below(0.5, last(n[2]))
		},
		"purehalf": func(lines []string, _ [][]float64) error {
			if err := contains(lines[0], "trained"); err != nil {
				return err
			}
			return contains(lines[1], "destroyed")
		},
		"lowstate": func(lines []string, _ [][]float64) error { return contains(lines[0], "use f32") },
	}
	for _, e := range examples() {
		t.Run(e.name, func(t *testing.T) {
			check := checks[e.name]
			if check == nil {
				t.Fatal("no check: say what this example is there to show")
			}
			lines, numbers := output(t, e.name)
			if err := check(lines, numbers); err != nil {
				t.Errorf("%v in\n%s", err, strings.Join(lines, "\n"))
			}
		})
	}
}

func below(x, bound float64) error {
	if x < bound {
		return nil
	}
	return fmt.Errorf("%g is not below %g", x, bound)
}

func within(x, want, share float64) error {
	if d := x - want; d <= share*want && -d <= share*want {
		return nil
	}
	return fmt.Errorf("%g is not within %g%% of %g", x, 100*share, want)
}

func contains(s, part string) error {
	if strings.Contains(s, part) {
		return nil
	}
	return fmt.Errorf("no %q in %q", part, s)
}

func TestUnknownExample(t *testing.T) {
	if err := run([]string{"nothing"}, nil); err == nil {
		t.Error("an unknown example runs")
	}
}

// The server refuses rows that do not have the model's width, and says which.
func TestRowsOf(t *testing.T) {
	row := "[" + strings.Repeat("1,", features-1) + "1]"
	if rows, err := rowsOf(strings.NewReader("[" + row + "," + row + "]")); err != nil || len(rows) != 2 {
		t.Errorf("two rows are read as %v (%v)", rows, err)
	}
	for body, want := range map[string]string{
		"[" + row + ",[1,2]]":             "row 1 has 2 numbers, want 16",
		"[[1," + row[1:] + "]":            "row 0 has 17 numbers, want 16",
		"[" + row + "][" + row + "]":      "want a list of rows of 16 numbers",
		"[]":                              "want a list of rows of 16 numbers",
		"[[\"a\"]]":                       "want a list of rows of 16 numbers",
		strings.Replace(row, "1", "", -1): "want a list of rows of 16 numbers",
	} {
		if _, err := rowsOf(strings.NewReader(body)); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", body, err, want)
		}
	}
}

// An interrupted server answers the requests that it has begun. It refuses bodies that are too large and says where there is no
// answer in JSON.
func TestServerIsInterrupted(t *testing.T) {
	t.Setenv("SERVE", "localhost:0")
	reader, writer := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- serve(writer) }()
	line, err := bufio.NewReader(reader).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	url := strings.Fields(line)[2]
	row := "[" + strings.Repeat("1,", features-1) + "1]"
	for body, want := range map[string]int{
		"[" + row + strings.Repeat(","+row, 20) + "]":     http.StatusOK,
		"[" + row + strings.Repeat(","+row, 40_000) + "]": http.StatusRequestEntityTooLarge,
		"[" + strings.ReplaceAll(row, "1", "3e38") + "]":  http.StatusUnprocessableEntity,
		"[" + row + "]" + row:                             http.StatusBadRequest,
	} {
		r, err := http.Post(url, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil || r.StatusCode != want || len(text) == 0 {
			t.Errorf("%.40s...: %s, want %d; %q, %v", body, r.Status, want, text, err)
		}
	}
	body, more := io.Pipe()
	answer := make(chan int, 1)
	begun := &http.Client{Transport: &http.Transport{ExpectContinueTimeout: time.Minute}} // sends a body when it is asked for
	go func() {
		ask, _ := http.NewRequest("POST", url, body)
		ask.Header.Set("Expect", "100-continue")
		r, err := begun.Do(ask)
		if err != nil {
			t.Error(err)
			answer <- 0
			return
		}
		r.Body.Close()
		answer <- r.StatusCode
	}()
	if _, err := io.WriteString(more, "["+row); err != nil { // the handler reads
		t.Fatal(err)
	}
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if err := self.Signal(syscall.SIGTERM); err != nil {
		t.Skip(err)
	}
	for { // until it takes no more requests
		if r, err := http.Post(url, "application/json", strings.NewReader("[]")); err != nil {
			break
		} else {
			r.Body.Close()
		}
	}
	if _, err := io.WriteString(more, "]"); err != nil {
		t.Error(err)
	}
	more.Close()
	if got := <-answer; got != http.StatusOK {
		t.Errorf("the request in flight was answered with %d", got)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
