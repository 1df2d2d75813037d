package httpapi

import (
	"errors"
	"net/http"
	"time"
)

// observed remembers the code of an answer, and why it is a refusal. Who does not read it is cut
// off.
type observed struct {
	http.ResponseWriter
	code  int
	why   string
	stall time.Duration // that a client may take for each part
	timed bool          // who answers gives the client time itself

	unread chan struct{} // holds a value for each answer that is large
	begun  bool          // its code is on the way
}

// Refused notes why.
func (o *observed) Refused(why string) { o.why = why }

// WriteHeader notes the code.
func (o *observed) WriteHeader(code int) {
	o.code, o.begun = code, true
	o.ResponseWriter.WriteHeader(code)
}

const (
	// readInTime is how much a client has to read in its time.
	readInTime = 64 << 10
	// maxUnread is how many answers that were made in one piece, of more than largeAnswer bytes,
	// are in memory until their clients have read them.
	maxUnread   = 16
	largeAnswer = 1 << 20
)

// Write writes in parts. A large answer for which there is no place is given up.
func (o *observed) Write(b []byte) (n int, err error) {
	if len(b) > largeAnswer {
		select {
		case o.unread <- struct{}{}:
			defer func() { <-o.unread }()
		default:
			return 0, o.giveUp()
		}
	}
	o.begun = true
	for {
		part := b[n:min(len(b), n+readInTime)]
		if !o.timed {
			o.extend()
		}
		m, err := o.ResponseWriter.Write(part)
		if n += m; err != nil || n == len(b) {
			return n, err
		}
	}
}

// giveUp answers that it cannot be done now, or breaks off, if that is no longer possible.
func (o *observed) giveUp() error {
	if o.begun {
		panic(http.ErrAbortHandler)
	}
	o.Header().Del("Content-Disposition")
	o.Header().Set("Retry-After", "1")
	refuse(http.StatusServiceUnavailable, "%d large answers wait for their clients to read them, and no more can: try again", maxUnread).write(o)
	return errUnread
}

// errUnread is why an answer was given up.
var errUnread = errors.New("too many answers wait to be read")

// wholly answers with what is made in one piece, of everything there is: a few at once, since it is
// large before it is written, too.
func (a *API) wholly(w http.ResponseWriter, body func() any) {
	select {
	case a.whole <- struct{}{}:
		defer func() { <-a.whole }()
	default:
		w.Header().Set("Retry-After", "1")
		refuse(http.StatusServiceUnavailable, "%d answers with everything there is are being made or read, and no more can: try again", maxWhole).write(w)
		return
	}
	writeJSON(w, body())
}

// maxWhole is how many answers with everything there is are made at once.
const maxWhole = 4

// SetWriteDeadline is what http.ResponseController calls.
func (o *observed) SetWriteDeadline(t time.Time) error {
	o.timed = true
	return http.NewResponseController(o.ResponseWriter).SetWriteDeadline(t)
}

// extend gives the client time. Writers of tests have no deadline, and need none.
func (o *observed) extend() {
	_ = http.NewResponseController(o.ResponseWriter).SetWriteDeadline(time.Now().Add(o.stall))
}

// Unwrap lets http.ResponseController reach the connection.
func (o *observed) Unwrap() http.ResponseWriter { return o.ResponseWriter }
