package rest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	v1 "loxilb/api/v1"
)

// Heartbeat is how long a stream without events is silent at most.
const Heartbeat = 15 * time.Second

// An EventStream writes server-sent events. A client that does not read for long is disconnected.
type EventStream struct {
	stall   time.Duration
	control *http.ResponseController
	buf     *bufio.Writer
	err     error
}

// NewEventStream starts a stream that ends if the client takes longer than stall for a part.
func NewEventStream(w http.ResponseWriter, stall time.Duration) *EventStream {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	return &EventStream{stall: stall, control: http.NewResponseController(w), buf: bufio.NewWriterSize(w, 4<<10)}
}

// Err returns why nothing is written any more: most often, the client does not read.
func (s *EventStream) Err() error { return s.err }

// Print appends text.
func (s *EventStream) Print(format string, args ...any) {
	if s.err == nil {
		s.extend() // the buffer may be written out now
		_, s.err = fmt.Fprintf(s.buf, format, args...)
	}
}

// Event appends an event whose data is a value in JSON.
func (s *EventStream) Event(name string, v any) {
	data, err := json.Marshal(v)
	if err != nil && s.err == nil {
		s.err = err
	}
	s.Print("event: %s\ndata: %s\n\n", name, data)
}

// Lost appends the number of lost events.
func (s *EventStream) Lost(n uint64) { s.Print("event: lost\ndata: {\"lost\":%d}\n\n", n) }

// End sends why the stream ends.
func (s *EventStream) End(why string) {
	s.Event("end", v1.Message{Message: why})
	s.Flush()
}

// Comment appends a comment, which clients ignore.
func (s *EventStream) Comment(text string) { s.Print(": %s\n\n", text) }

// Flush sends what was appended.
func (s *EventStream) Flush() {
	if s.err != nil {
		return
	}
	s.extend()
	if s.err = s.buf.Flush(); s.err == nil {
		s.err = s.control.Flush()
	}
}

// extend gives the client time for the next part. Writers of tests have no deadline, and need none.
func (s *EventStream) extend() { _ = s.control.SetWriteDeadline(time.Now().Add(s.stall)) }
