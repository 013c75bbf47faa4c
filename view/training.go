package view

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"

	"ampc/fit"
)

// Point is what one training step came to: a line of the run's log.
type Point struct {
	step int
	line []byte // JSON
}

// NewPoint makes a point of a row of a log.
func NewPoint(r fit.Row) (Point, error) {
	line, err := json.Marshal(r)
	return Point{r.Step, line}, err
}

// MarshalJSON gives the line.
func (p Point) MarshalJSON() ([]byte, error) { return p.line, nil }

// Training is a run as the page draws it.
type Training struct {
	Title  string  `json:"title"`
	Live   bool    `json:"live"` // points are sent as events
	Points []Point `json:"points"`
}

// Stream hands points of a run that goes on to the pages that are open. Its zero value is
// empty.
type Stream struct {
	mu     sync.Mutex
	points []Point
	ended  bool
	news   chan struct{} // closed at the next change
}

// maxPoints is the number of points that a stream keeps, the latest ones.
const maxPoints = 200_000

// Add appends the point of a row.
func (s *Stream) Add(r fit.Row) error {
	p, err := NewPoint(r)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.points) >= maxPoints {
		s.points = append([]Point{}, s.points[maxPoints/2:]...)
	}
	s.points = append(s.points, p)
	s.notify()
	return nil
}

// End says that no point follows.
func (s *Stream) End() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.notify()
}

func (s *Stream) notify() {
	if s.news != nil {
		close(s.news)
		s.news = nil
	}
}

// after returns the points after a step, whether more will follow, and a channel that is closed at
// the next change.
func (s *Stream) after(step int) (list []Point, ended bool, news <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.points); i > 0 && s.points[i-1].step > step; i-- {
		list = s.points[i-1:]
	}
	if s.news == nil {
		s.news = make(chan struct{})
	}
	return append([]Point{}, list...), s.ended, s.news
}

// serve sends server-sent events: batches of points whose id is the last step, then "end". A
// browser that reconnects sends the last id that it received.
func (s *Stream) serve(w http.ResponseWriter, r *http.Request) {
	flusher, ok := w.(http.Flusher)
	if !ok {
		http.Error(w, "cannot stream", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	last := -1
	if id, err := strconv.Atoi(r.Header.Get("Last-Event-ID")); err == nil {
		last = id
	}
	for {
		list, ended, news := s.after(last)
		if len(list) > 0 {
			text, err := json.Marshal(list)
			if err != nil {
				return
			}
			last = list[len(list)-1].step
			fmt.Fprintf(w, "id: %d\ndata: %s\n\n", last, text)
		}
		if ended {
			fmt.Fprint(w, "event: end\ndata: end\n\n")
		}
		flusher.Flush()
		if ended {
			return
		}
		select {
		case <-news:
		case <-r.Context().Done():
			return
		}
	}
}
