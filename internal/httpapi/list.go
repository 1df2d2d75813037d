package httpapi

import (
	"bufio"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"time"

	"loxilb/internal/lb"
)

// stallLimit is how long a client may take to read a part of a streamed answer.
const stallLimit = 30 * time.Second

// GetLoadbalancers answers with all services.
func (a *API) GetLoadbalancers(w http.ResponseWriter, r *http.Request) {
	out := newStream(w, "lbAttr")
	now := a.Store.Snapshot()
	drains := slices.Collect(a.Store.Drains.All(now))
	for s := range a.Store.Services.All(now) {
		stats, _ := a.DataPath.ServiceStats(s.Key)
		e := a.codec.answer(&s, &stats, a.Health.EndpointState)
		for i := range s.Endpoints {
			e.Endpoints[i].Drained = drained(drains, &s.Endpoints[i])
		}
		e.Status = a.serviceStatus(now, s.Key)
		if r.Context().Err() != nil || !out.item(e) {
			return
		}
	}
	out.end()
}

// counter is packets and bytes of both directions.
func counter(t lb.EndpointStats) string {
	return strconv.FormatUint(t.In.Packets+t.Out.Packets, 10) + ":" + strconv.FormatUint(t.In.Bytes+t.Out.Bytes, 10)
}

// stream writes {"key":[...]} an item at a time, one on a line, so that no answer is ever held in memory whole. A
// stream that is not ended is not JSON: that is how a client learns that something failed on the way.
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

func (s *stream) end() {
	s.write("]}\n")
	_ = s.buf.Flush() // the client is gone if this fails
}

func (s *stream) write(text string) {
	if s.err == nil {
		_, s.err = s.buf.WriteString(text)
	}
}

// extend gives the client time for the next part. Writers of tests have no deadline, and need none.
func (s *stream) extend() { _ = s.control.SetWriteDeadline(time.Now().Add(stallLimit)) }
