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

// A List writes {"key":[...]} an item at a time, one on a line, so that no answer is ever held in
// memory whole. A stream that is not ended is not JSON: that is how a client learns that something
// failed on the way.
type List struct {
	control *http.ResponseController
	buf     *bufio.Writer
	enc     *json.Encoder
	started bool
	Count   int
	Err     error
}

// NewList starts the response; key is the property that holds the list.
func NewList(w http.ResponseWriter, key string) *List {
	w.Header().Set("Content-Type", "application/json")
	s := &List{control: http.NewResponseController(w), buf: bufio.NewWriterSize(w, 64<<10)}
	s.enc = json.NewEncoder(s.buf)
	s.extend()
	s.write(`{"` + key + `":[` + "\n")
	return s
}

// Item writes one item, and is false when nobody reads any more.
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

// EndPage ends a page, and says where the next one begins, if there is one.
func (s *List) EndPage(next string) {
	s.write("]")
	if next != "" {
		s.write(`,"continue":` + strconv.Quote(next))
	}
	s.write("}\n")
	_ = s.buf.Flush() // the client is gone if this fails
}

func (s *List) write(text string) {
	if s.Err == nil {
		_, s.Err = s.buf.WriteString(text)
	}
}

// extend gives the client time for the next part. Writers of tests have no deadline, and need none.
func (s *List) extend() { _ = s.control.SetWriteDeadline(time.Now().Add(stallLimit)) }
