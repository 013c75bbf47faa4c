package main

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// browser is a headless Chromium that is driven by its DevTools protocol over a pipe.
type browser struct {
	t       testing.TB
	to      *os.File
	answers chan answer
	session string
	id      int
	// faults are exceptions of the page, and what its content security policy refused.
	faults []string
}

// answer is a message of the browser: a result, or an event.
type answer struct {
	ID     int             `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// openBrowser starts Chromium, or skips the test where there is none.
func openBrowser(t testing.TB) *browser {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("no chromium on this machine: pages are not looked at")
	}
	theirs, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, ours, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(path, "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--no-first-run", "--hide-scrollbars", "--window-size=1400,900", "--user-data-dir="+t.TempDir())
	c.ExtraFiles = []*os.File{theirs, ours} // descriptors 3 and 4
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	ours.Close()
	b := &browser{t: t, to: to, answers: make(chan answer, 1000)}
	go b.listen(from)
	t.Cleanup(func() {
		to.Write([]byte(`{"id":1000000,"method":"Browser.close"}` + "\x00"))
		ended := make(chan struct{})
		go func() { c.Wait(); close(ended) }()
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			c.Process.Kill()
			<-ended
		}
		to.Close()
		from.Close()
	})
	var target struct {
		TargetID string `json:"targetId"`
	}
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct {
		SessionID string `json:"sessionId"`
	}
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		b.call(domain+".enable", nil, nil)
	}
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": 1400, "height": 900, "deviceScaleFactor": 1, "mobile": false}, nil)
	return b
}

func (b *browser) listen(from *os.File) {
	defer close(b.answers)
	r := bufio.NewReader(from)
	for {
		text, err := r.ReadBytes(0)
		if err != nil {
			return
		}
		var a answer
		if json.Unmarshal(text[:len(text)-1], &a) == nil {
			b.answers <- a
		}
	}
}

// call sends a command and waits for its result.
func (b *browser) call(method string, params any, into any) {
	b.t.Helper()
	b.id++
	text, err := json.Marshal(map[string]any{"id": b.id, "method": method, "params": params, "sessionId": b.session})
	if b.session == "" {
		text, err = json.Marshal(map[string]any{"id": b.id, "method": method, "params": params})
	}
	if err == nil {
		_, err = b.to.Write(append(text, 0))
	}
	if err != nil {
		b.t.Fatal(err)
	}
	limit := time.After(60 * time.Second)
	for {
		select {
		case a, open := <-b.answers:
			switch {
			case !open:
				b.t.Fatalf("%s: the browser ended", method)
			case a.ID == b.id && a.Error != nil:
				b.t.Fatalf("%s: %s", method, a.Error.Message)
			case a.ID == b.id:
				if into != nil {
					if err := json.Unmarshal(a.Result, into); err != nil {
						b.t.Fatal(err)
					}
				}
				return
			}
			b.note(a)
		case <-limit:
			b.t.Fatalf("%s: no answer", method)
		}
	}
}

// ownAddress is where pages come from: a file, or a server of this machine.
var ownAddress = regexp.MustCompile(`^(file:///|data:|blob:|http://127\.0\.0\.1:)`)

// note keeps what went wrong on a page.
func (b *browser) note(a answer) {
	switch a.Method {
	case "Runtime.exceptionThrown":
		b.faults = append(b.faults, string(a.Params))
	case "Network.requestWillBeSent":
		var sent struct{ Request struct{ URL string } }
		if json.Unmarshal(a.Params, &sent) != nil || !ownAddress.MatchString(sent.Request.URL) {
			b.faults = append(b.faults, "asked the network for "+string(a.Params))
		}
	case "Log.entryAdded":
		if strings.Contains(string(a.Params), `"level":"error"`) {
			b.faults = append(b.faults, string(a.Params))
		}
	}
}

// eval runs an expression on the page, waits for its promise and decodes its value.
func (b *browser) eval(expression string, into any) {
	b.t.Helper()
	if err := b.tryEval(expression, into); err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
}

func (b *browser) tryEval(expression string, into any) error {
	var r struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		Exception *struct {
			Exception struct {
				Description string `json:"description"`
			} `json:"exception"`
		} `json:"exceptionDetails"`
	}
	b.call("Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true}, &r)
	if r.Exception != nil {
		return errors.New(r.Exception.Exception.Description)
	}
	if into == nil || r.Result.Value == nil {
		return nil
	}
	return json.Unmarshal(r.Result.Value, into)
}

// until waits for an expression to be true.
func (b *browser) until(expression string) {
	b.t.Helper()
	for range 400 {
		var now bool
		if b.tryEval("Boolean("+expression+")", &now) == nil && now {
			return
		}
		time.Sleep(25 * time.Millisecond)
	}
	b.t.Fatalf("never true: %s; faults %q", expression, b.faults)
}

// open goes to an address and waits for the page.
func (b *browser) open(address string) {
	b.t.Helper()
	b.faults = nil
	b.call("Page.navigate", map[string]any{"url": address}, nil)
	b.until("document.body && document.body.dataset.ready")
	b.quiet()
}

// quiet is an error where the page threw something or its policy refused something.
func (b *browser) quiet() {
	b.t.Helper()
	var ready string
	b.eval("document.body.dataset.ready", &ready)
	if ready != "yes" {
		var text string
		b.eval("document.getElementById('panel').textContent", &text)
		b.t.Errorf("the page failed: %s", text)
	}
	for _, f := range b.faults {
		b.t.Errorf("the page: %s", f)
	}
	b.faults = nil
}

// picture saves a screenshot where AMPC_PICTURES names a folder.
func (b *browser) picture(name string) {
	b.t.Helper()
	dir := os.Getenv("AMPC_PICTURES")
	if dir == "" {
		return
	}
	var r struct {
		Data string `json:"data"`
	}
	b.eval("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))", nil)
	b.call("Page.captureScreenshot", map[string]any{"format": "png"}, &r)
	data, err := base64.StdEncoding.DecodeString(r.Data)
	if err == nil {
		err = os.WriteFile(fmt.Sprintf("%s/%s.png", dir, name), data, 0o644)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}
