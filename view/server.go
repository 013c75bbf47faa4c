package view

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"
)

// Server shows a page to who knows its address. It reads no files.
type Server struct {
	page  *Page
	token string
	host  string // required in requests, so that pages of other sites cannot reach the server
	ln    net.Listener

	mu   sync.Mutex
	made map[string][]byte // blocks as JSON
}

// Listen opens an address for a page, such as 127.0.0.1:0. Port 0 is a free one. An address without
// a host, such as :8080, is on the loopback interface; 0.0.0.0:8080 is on all. The first block is
// made at once: the page opens without waiting for it.
func Listen(address string, p *Page) (*Server, error) {
	listen := address
	if strings.HasPrefix(address, ":") {
		listen = "127.0.0.1" + address
	}
	ln, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	var secret [16]byte
	rand.Read(secret[:]) // cannot fail
	s := &Server{page: p, token: hex.EncodeToString(secret[:]), host: ln.Addr().String(), ln: ln, made: map[string][]byte{}}
	if _, err := s.block(&p.Blocks[0]); err != nil {
		ln.Close()
		return nil, err
	}
	return s, nil
}

// Address is where the page is, the token included. Where the server listens on all interfaces, it
// is an address that other machines reach, if this one has any.
func (s *Server) Address() string {
	host := s.host
	if own, err := netip.ParseAddrPort(s.host); err == nil && own.Addr().IsUnspecified() {
		host = netip.AddrPortFrom(reachable(), own.Port()).String()
	}
	return fmt.Sprintf("http://%s/?token=%s", host, s.token)
}

// reachable is an address of this machine: of IPv4 if there is one, else that of the loopback
// interface.
func reachable() netip.Addr {
	list, _ := net.InterfaceAddrs() // none after an error
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() && p.Addr().IsGlobalUnicast() {
			return p.Addr()
		}
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}

// named reports whether a request that names this host is for this server. Where it listens on all
// interfaces, that is any address, but no name: a name may be another site's, rebound to this
// machine.
func (s *Server) named(host string) bool {
	if host == s.host {
		return true
	}
	own, err := netip.ParseAddrPort(s.host)
	asked, notAddress := netip.ParseAddrPort(host)
	return err == nil && notAddress == nil && own.Addr().IsUnspecified() && asked.Port() == own.Port()
}

// Run answers requests until ctx ends; those that it is answering have a moment more.
func (s *Server) Run(ctx context.Context) error {
	server := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		const grace = 500 * time.Millisecond
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		if server.Shutdown(late) != nil {
			server.Close()
		}
	})
	err := server.Serve(s.ln)
	if stop() || !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	<-closed
	return context.Cause(ctx)
}

// ServeHTTP implements http.Handler: the page at /, a block at /data/NAME.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	for _, field := range [][2]string{{"X-Content-Type-Options", "nosniff"}, {"Referrer-Policy", "no-referrer"}, {"Cache-Control", "no-store"},
		{"Cross-Origin-Resource-Policy", "same-origin"}, {"Cross-Origin-Opener-Policy", "same-origin"}, {"X-Frame-Options", "DENY"},
		{"Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'"}} {
		h.Set(field[0], field[1])
	}
	switch {
	case !s.named(r.Host) || r.Header.Get("Origin") != "" && r.Header.Get("Origin") != "http://"+r.Host:
		http.Error(w, "this server has another name", http.StatusForbidden)
	case subtle.ConstantTimeCompare([]byte(r.URL.Query().Get("token")), []byte(s.token)) != 1:
		http.Error(w, "the address lacks the token that ampc view printed", http.StatusForbidden)
	case r.Method != http.MethodGet:
		http.Error(w, "want GET", http.StatusMethodNotAllowed)
	case r.URL.Path == "/":
		s.servePage(w)
	case r.URL.Path == "/events" && s.page.Live != nil:
		s.page.Live.serve(w, r)
	case strings.HasPrefix(r.URL.Path, "/data/"):
		s.serveBlock(w, strings.TrimPrefix(r.URL.Path, "/data/"))
	default:
		http.NotFound(w, r)
	}
}

func (s *Server) servePage(w http.ResponseWriter) {
	first := &s.page.Blocks[0]
	data, err := s.block(first)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	text, err := s.page.html(true, map[string][]byte{first.Name: data})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	policy, err := security()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Security-Policy", policy+"; frame-ancestors 'none'")
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Write(text)
}

func (s *Server) serveBlock(w http.ResponseWriter, name string) {
	for i := range s.page.Blocks {
		if b := &s.page.Blocks[i]; b.Name == name {
			data, err := s.block(b)
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			w.Write(data)
			return
		}
	}
	http.Error(w, "no such block", http.StatusNotFound)
}

// block builds a block once.
func (s *Server) block(b *Block) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if data, there := s.made[b.Name]; there {
		return data, nil
	}
	data, err := b.encode()
	if err == nil {
		s.made[b.Name] = data
	}
	return data, err
}
