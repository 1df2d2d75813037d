package rest

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// Writer remembers the code of an answer, and why it is a refusal. A client that stops reading is
// disconnected.
type Writer struct {
	http.ResponseWriter
	Code  int
	Why   string
	stall time.Duration // that a client may take for each part
	timed bool          // the handler extends the deadline itself

	unread UnreadAnswers
	begun  bool // its code was sent
}

// UnreadAnswers holds a value for each large answer that its client has not read.
type UnreadAnswers chan struct{}

// NewUnread returns places for large answers.
func NewUnread() UnreadAnswers { return make(UnreadAnswers, MaxUnread) }

// NewWriter returns a writer that gives a client this long for each part of the response.
func NewWriter(w http.ResponseWriter, stall time.Duration, unread UnreadAnswers) *Writer {
	return &Writer{ResponseWriter: w, Code: http.StatusOK, stall: stall, unread: unread}
}

// Refused notes why.
func (o *Writer) Refused(why string) { o.Why = why }

// WriteHeader notes the code.
func (o *Writer) WriteHeader(code int) {
	o.Code, o.begun = code, true
	o.ResponseWriter.WriteHeader(code)
}

const (
	// readInTime is the number of bytes that a client must read per deadline.
	readInTime = 64 << 10
	// MaxUnread bounds the answers made in one piece, of more than largeAnswer bytes, that wait
	// in memory for their clients.
	MaxUnread = 16
	// LargeAnswer is the size above which an answer needs a place.
	LargeAnswer = 1 << 20
)

// Write writes in parts. It abandons a large answer if too many are unread.
func (o *Writer) Write(b []byte) (n int, err error) {
	if len(b) > LargeAnswer {
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
			o.Extend()
		}
		m, err := o.ResponseWriter.Write(part)
		if n += m; err != nil || n == len(b) {
			return n, err
		}
	}
}

// giveUp replies that the request cannot be answered now. If the response has begun, it aborts the
// connection.
func (o *Writer) giveUp() error {
	if o.begun {
		panic(http.ErrAbortHandler)
	}
	o.Header().Del("Content-Disposition")
	o.Header().Set("Retry-After", "1")
	Refuse(http.StatusServiceUnavailable, "%d large answers are waiting for their clients, which is the limit: try again", MaxUnread).Write(o)
	return errUnread
}

// errUnread is why an answer was given up.
var errUnread = errors.New("too many answers wait to be read")

// WholeAnswers holds a value for each answer with everything there is.
type WholeAnswers chan struct{}

// NewWholeAnswers returns places for whole answers.
func NewWholeAnswers() WholeAnswers { return make(WholeAnswers, MaxWhole) }

// Answer replies with a complete list made in one piece. It bounds their concurrency, since they
// are large in memory.
func (places WholeAnswers) Answer(w http.ResponseWriter, body func() any) {
	select {
	case places <- struct{}{}:
		defer func() { <-places }()
	default:
		w.Header().Set("Retry-After", "1")
		Refuse(http.StatusServiceUnavailable, "%d complete answers are being made or read, which is the limit: try again", MaxWhole).Write(w)
		return
	}
	JSON(w, body())
}

// MaxWhole bounds the concurrent answers that list everything.
const MaxWhole = 4

// SetWriteDeadline is called by http.ResponseController.
func (o *Writer) SetWriteDeadline(t time.Time) error {
	o.timed = true
	return http.NewResponseController(o.ResponseWriter).SetWriteDeadline(t)
}

// Extend extends the deadline. Writers of tests have none.
func (o *Writer) Extend() {
	_ = http.NewResponseController(o.ResponseWriter).SetWriteDeadline(time.Now().Add(o.stall))
}

// Unwrap lets http.ResponseController reach the connection.
func (o *Writer) Unwrap() http.ResponseWriter { return o.ResponseWriter }

// MaxWarnings bounds the warnings of an answer: headers have little room.
const MaxWarnings = 8

// Warnings are notes about a successful request, each in a header Warning, as in Kubernetes, since
// the existing loxilb defines the body. Each occurs once, though an edit may run several times.
type Warnings struct {
	List []string
	seen map[string]struct{} // a request of thousands of objects may warn of each
}

// Add notes a warning.
func (w *Warnings) Add(format string, args ...any) { w.note(fmt.Sprintf(format, args...)) }

func (w *Warnings) note(text string) {
	if _, there := w.seen[text]; there {
		return
	}
	if w.seen == nil {
		w.seen = map[string]struct{}{}
	}
	w.seen[text] = struct{}{}
	w.List = append(w.List, text)
}

// Join adds the warnings of another request.
func (w *Warnings) Join(other *Warnings) {
	for _, text := range other.List {
		w.note(text)
	}
}

// Write sets the warnings in the header of the response, each of them once.
func (w *Warnings) Write(to http.ResponseWriter) {
	list := w.List
	if len(list) > MaxWarnings {
		list = append(list[:MaxWarnings-1:MaxWarnings-1], fmt.Sprintf("and %d more of the kind", len(list)-MaxWarnings+1))
	}
	for _, text := range list {
		line := "299 loxilb " + strconv.QuoteToASCII(text)
		if !slices.Contains(to.Header().Values("Warning"), line) {
			to.Header().Add("Warning", line)
		}
	}
}
