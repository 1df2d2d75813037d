package rest

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// stallLimit is how long a client may take to read a part of a streamed answer.
const stallLimit = 30 * time.Second

// A List writes {"key":[...]} item by item, one per line, so no answer is in memory as a whole. A
// failing stream is not terminated: the invalid JSON shows the client the failure.
type List struct {
	control *http.ResponseController
	buf     *bufio.Writer
	enc     *json.Encoder
	started bool
	Count   int
	Err     error
}

// NewList starts the answer; key is the property that holds the list.
func NewList(w http.ResponseWriter, key string) *List {
	w.Header().Set("Content-Type", "application/json")
	s := &List{control: http.NewResponseController(w), buf: bufio.NewWriterSize(w, 64<<10)}
	s.enc = json.NewEncoder(s.buf)
	s.extend()
	s.write(`{"` + key + `":[` + "\n")
	return s
}

// Item writes an item. It returns false once the client no longer reads.
func (s *List) Item(v any) bool {
	if s.started {
		s.write(",")
	}
	s.started = true
	if s.Err == nil {
		s.Err = s.enc.Encode(v)
	}
	if s.Count++; s.Count%256 == 0 {
		s.extend()
	}
	return s.Err == nil
}

// End ends a list that has no further page.
func (s *List) End() { s.EndPage("") }

// EndPage ends a page, with the start of the next one if there is one.
func (s *List) EndPage(next string) {
	s.write("]")
	if next != "" {
		s.write(`,"continue":` + strconv.Quote(next))
	}
	s.write("}\n")
	_ = s.buf.Flush() // fails only if the client has disconnected
}

func (s *List) write(text string) {
	if s.Err == nil {
		_, s.Err = s.buf.WriteString(text)
	}
}

// extend extends the deadline for the next part. Writers of tests have none.
func (s *List) extend() { _ = s.control.SetWriteDeadline(time.Now().Add(stallLimit)) }
