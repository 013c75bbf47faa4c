package view

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"ampc/ir"
)

// hostile is a model whose names would be HTML and scripts.
const hostile = `graph @"</script><script>alert(1)</script>" {
  input %"<img src=x onerror=alert(2)>" : f32[4]
forward:
  %"</script><b>.\"&amp;" = relu %"<img src=x onerror=alert(2)>" : f32[4]
  return %"</script><b>.\"&amp;"
}
`

func parse(t *testing.T, text string) *ir.Graph {
	t.Helper()
	g, err := ir.ParseOpaque("test.ir", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// decode reads a block out of a page.
func decode(t *testing.T, page, name string, into any) {
	t.Helper()
	m := regexp.MustCompile(`<script type="application/gzip" id="block-` + name + `">([^<]*)</script>`).FindStringSubmatch(page)
	if m == nil {
		t.Fatalf("no block %s", name)
	}
	z, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(m[1])))
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatal(err)
	}
}

// Names of a model never reach the page as HTML, and its values keep them all the same.
func TestNamesAreEscaped(t *testing.T) {
	g := parse(t, hostile)
	p := &Page{Title: g.Name, Blocks: []Block{new(Layouts).Block("graph", g.Name, g)}}
	var b bytes.Buffer
	if _, err := p.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	if m := regexp.MustCompile(`<[^>]*alert\(`).FindString(b.String()); m != "" {
		t.Errorf("a name is markup: %s", m)
	}
	if n := strings.Count(b.String(), "<script"); n != 3 { // index, block and the page's own
		t.Errorf("%d scripts, want 3", n)
	}
	var got Graph
	decode(t, b.String(), "graph", &got)
	if want := g.Vars[0].String(); got.Values[0].Name != want {
		t.Errorf("name %q, want %q", got.Values[0].Name, want)
	}
}

// The page without data stays small, and nothing in it names another host.
func TestPageIsSmallAndAlone(t *testing.T) {
	text, err := (&Page{Title: "empty"}).html(false, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(text) > 300_000 {
		t.Errorf("the page has %d bytes, want 300000 at most", len(text))
	}
	t.Logf("page without data: %d bytes", len(text))
	for _, m := range regexp.MustCompile(`https?://[^"' )]*`).FindAllString(string(text), -1) {
		if m != "http://www.w3.org/2000/svg" { // a name, not an address
			t.Errorf("the page names %s", m)
		}
	}
	for _, bad := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"} {
		if strings.Contains(string(text), bad) {
			t.Errorf("the script uses %s", bad)
		}
	}
}

// Every box is in exactly one scope, every operand has a value.
func TestScopesHoldAllBoxes(t *testing.T) {
	var b strings.Builder
	b.WriteString("graph @long {\n  input %x.a : f32[4]\nforward:\n  %y.0 = relu %x.a\n")
	for i := range 500 {
		b.WriteString("  %y." + string(rune('a'+i%26)) + strings.Repeat("b", i/26) + " = relu %y.0\n")
	}
	b.WriteString("  return %y.0\n}\n")
	g, err := new(Layouts).Describe(parse(t, b.String()))
	if err != nil {
		t.Fatal(err)
	}
	homes := make([]int, len(g.Boxes))
	for _, s := range g.Scopes {
		if len(s.Items) > maxItems {
			t.Errorf("scope %s has %d items, want %d at most", s.Name, len(s.Items), maxItems)
		}
		for _, item := range s.Items {
			if item >= 0 {
				homes[item]++
			}
		}
	}
	for i, n := range homes {
		if n != 1 {
			t.Errorf("box %d (%s) is in %d scopes", i, g.Boxes[i].Line, n)
		}
	}
}

func get(t *testing.T, url, host, origin string) (int, string, http.Header) {
	t.Helper()
	r, err := http.NewRequest("GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if host != "" {
		r.Host = host
	}
	if origin != "" {
		r.Header.Set("Origin", origin)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body), resp.Header
}

// The server answers only who knows the token and calls it by its own name.
func TestServer(t *testing.T) {
	g := parse(t, hostile)
	made := 0
	p := &Page{Title: "t", Blocks: []Block{new(Layouts).Block("graph", "", g), {"later", "", func() (any, error) { made++; return 7, nil }}}}
	s, err := Listen("127.0.0.1:0", p)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	address, query, _ := strings.Cut(s.Address(), "/?")
	for _, c := range []struct {
		url, host string
		code      int
	}{
		{"/?" + query, "", 200}, {"/data/later?" + query, "", 200}, {"/data/later?" + query, "", 200},
		{"/", "", 403}, {"/data/later", "", 403}, {"/?token=", "", 403}, {"/?" + query, "evil.example", 403},
		{"/data/none?" + query, "", 404}, {"/data/../page.go?" + query, "", 404}, {"/etc/passwd?" + query, "", 404},
	} {
		code, body, header := get(t, address+c.url, c.host, "")
		if code != c.code {
			t.Errorf("%s as %q: %d, want %d", c.url, c.host, code, c.code)
		}
		if code != 200 && strings.Contains(body, "relu") {
			t.Errorf("%s: an error tells of the model", c.url)
		}
		if csp := header.Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'none'") || !strings.Contains(csp, "frame-ancestors 'none'") || strings.Contains(csp, "unsafe") {
			t.Errorf("%s: policy %q", c.url, csp)
		}
	}
	for origin, want := range map[string]int{"https://evil.example": 403, "null": 403, address: 200} {
		if code, _, _ := get(t, address+"/?"+query, "", origin); code != want {
			t.Errorf("asked by a page of %s: %d, want %d", origin, code, want)
		}
	}
	if made != 1 {
		t.Errorf("a block was made %d times", made)
	}
	resp, err := http.Post(s.Address(), "text/plain", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", resp.StatusCode)
	}
	cancel()
	if err := <-done; err != context.Canceled {
		t.Errorf("Run: %v", err)
	}
}

// Without a host in its address the server is on the loopback interface alone. Where it is asked to
// be on all, it answers to the machine's addresses and to no name.
func TestServerHosts(t *testing.T) {
	p := &Page{Title: "t", Blocks: []Block{new(Layouts).Block("graph", "", parse(t, hostile))}}
	for _, c := range []struct {
		listen, host string
		code         int
	}{
		{":0", "", 200}, {":0", "192.0.2.1", 403}, {":0", "localhost", 403},
		{"0.0.0.0:0", "", 200}, {"0.0.0.0:0", "127.0.0.1", 200}, {"0.0.0.0:0", "192.0.2.1", 200}, {"0.0.0.0:0", "evil.example", 403},
	} {
		s, err := Listen(c.listen, p)
		if err != nil {
			t.Fatal(err)
		}
		at, err := netip.ParseAddrPort(s.host)
		if err != nil || at.Addr().IsLoopback() != (c.listen == ":0") {
			t.Errorf("%s listens on %s", c.listen, s.host)
		}
		r := httptest.NewRequest("GET", "/?token="+s.token, nil)
		if r.Host = s.host; c.host != "" {
			r.Host = fmt.Sprintf("%s:%d", c.host, at.Port())
		}
		address, err := url.Parse(s.Address())
		if err != nil {
			t.Fatal(err)
		}
		printed, err := netip.ParseAddrPort(address.Host)
		if err != nil || printed.Addr().IsUnspecified() || printed.Port() != at.Port() || !s.named(address.Host) {
			t.Errorf("%s prints %s", c.listen, address)
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != c.code {
			t.Errorf("%s, asked as %s: %d, want %d", c.listen, r.Host, w.Code, c.code)
		}
		s.ln.Close()
	}
}
