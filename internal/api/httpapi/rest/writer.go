package rest

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// Writer records the code of an answer, and the reason for a refusal. It disconnects a client that
// stops reading.
type Writer struct {
	http.ResponseWriter
	Code  int
	Why   string
	stall time.Duration // time that a client may take for each part
	timed bool          // the handler extends the deadline itself

	unread UnreadAnswers
	begun  bool // the code was sent
}

// UnreadAnswers holds a value for each large answer that its client has not read.
type UnreadAnswers chan struct{}

// NewUnread returns the limit of large answers.
func NewUnread() UnreadAnswers { return make(UnreadAnswers, MaxUnread) }

// NewWriter returns a writer that gives a client this long for each part of the response.
func NewWriter(w http.ResponseWriter, stall time.Duration, unread UnreadAnswers) *Writer {
	return &Writer{ResponseWriter: w, Code: http.StatusOK, stall: stall, unread: unread}
}

// Refused records the reason for a refusal.
func (o *Writer) Refused(why string) { o.Why = why }

// WriteHeader records and sends the code.
func (o *Writer) WriteHeader(code int) {
	o.Code, o.begun = code, true
	o.ResponseWriter.WriteHeader(code)
}

const (
	// bytesPerDeadline is the number of bytes that a client must read per deadline.
	bytesPerDeadline = 64 << 10
	// MaxUnread bounds the answers of more than LargeAnswer bytes that wait in memory for their
	// clients.
	MaxUnread = 16
	// LargeAnswer is the size above which an answer counts towards MaxUnread.
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
		part := b[n:min(len(b), n+bytesPerDeadline)]
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

// errUnread reports that an answer was given up.
var errUnread = errors.New("too many answers wait to be read")

// CompleteLists holds a value for each answer with a complete list that is in memory.
type CompleteLists chan struct{}

// NewCompleteLists returns a CompleteLists that accepts MaxCompleteLists answers at once.
func NewCompleteLists() CompleteLists { return make(CompleteLists, MaxCompleteLists) }

// Answer replies with a complete list made in one piece. It bounds their concurrency, since they
// are large in memory.
func (places CompleteLists) Answer(w http.ResponseWriter, body func() any) {
	select {
	case places <- struct{}{}:
		defer func() { <-places }()
	default:
		w.Header().Set("Retry-After", "1")
		Refuse(http.StatusServiceUnavailable, "%d complete answers are being made or read, which is the limit: try again", MaxCompleteLists).Write(w)
		return
	}
	JSON(w, body())
}

// MaxCompleteLists bounds the concurrent answers with complete lists.
const MaxCompleteLists = 4

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

// Warnings are the warnings about a successful request. Each is sent in a header Warning, as in
// Kubernetes, since the contract defines the body. Each occurs once, although an edit may run
// several times.
type Warnings struct {
	List []string
	seen map[string]struct{} // a request may have thousands of objects with a warning each
}

// Add adds a warning.
func (w *Warnings) Add(format string, args ...any) { w.add(fmt.Sprintf(format, args...)) }

func (w *Warnings) add(text string) {
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
		w.add(text)
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
