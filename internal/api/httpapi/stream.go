package httpapi

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// stallLimit is how long a client may take to read a part of a streamed answer.
const stallLimit = 30 * time.Second

// stream writes {"key":[...]} an item at a time, one on a line, so that no answer is ever held in
// memory whole. A stream that is not ended is not JSON: that is how a client learns that something
// failed on the way.
type stream struct {
	control *http.ResponseController
	buf     *bufio.Writer
	enc     *json.Encoder
	started bool
	count   int
	err     error
}

func newStream(w http.ResponseWriter, key string) *stream {
	w.Header().Set("Content-Type", "application/json")
	s := &stream{control: http.NewResponseController(w), buf: bufio.NewWriterSize(w, 64<<10)}
	s.enc = json.NewEncoder(s.buf)
	s.extend()
	s.write(`{"` + key + `":[` + "\n")
	return s
}

// item writes one item, and is false when nobody reads any more.
func (s *stream) item(v any) bool {
	if s.started {
		s.write(",")
	}
	s.started = true
	if s.err == nil {
		s.err = s.enc.Encode(v)
	}
	if s.count++; s.count%256 == 0 {
		s.extend()
	}
	return s.err == nil
}

func (s *stream) end() { s.endPage("") }

// endPage ends a page, and says where the next one begins, if there is one.
func (s *stream) endPage(next string) {
	s.write("]")
	if next != "" {
		s.write(`,"continue":` + strconv.Quote(next))
	}
	s.write("}\n")
	_ = s.buf.Flush() // the client is gone if this fails
}

func (s *stream) write(text string) {
	if s.err == nil {
		_, s.err = s.buf.WriteString(text)
	}
}

// extend gives the client time for the next part. Writers of tests have no deadline, and need none.
func (s *stream) extend() { _ = s.control.SetWriteDeadline(time.Now().Add(stallLimit)) }
