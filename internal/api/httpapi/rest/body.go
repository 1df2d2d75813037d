// Package rest reads requests of the REST API and writes answers: JSON, refusals, lists and event
// streams, and limits on their concurrency.
package rest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"os"
	"time"
)

// BaseURL is the path prefix of the API.
const BaseURL = "/netlox/v1"

const (
	// MaxBody has room for the maximum number of services and endpoints, indented.
	MaxBody = 64 << 20
	// MaxBodies is the number of requests that are read and decoded at once, over all
	// connections. It bounds their memory.
	MaxBodies = 8
	// MaxSmall is the largest body that is decoded concurrently with others. Larger bodies are
	// decoded one at a time.
	MaxSmall = 4 << 20
	// maxTrusted bounds the memory that is allocated because of Content-Length.
	maxTrusted = 16 << 10
	// bodyWait is how long a request waits for its turn.
	bodyWait = 10 * time.Second
)

// Reader reads the bodies of requests, a bounded number and size at a time.
type Reader struct {
	wait    time.Duration // how long a request with a body waits for its turn
	ignored *ignored      // nil: unknown properties are refused

	bodies        chan struct{} // holds a value for each body that is read
	largeBodies   chan struct{} // large bodies, read one at a time
	WaitingBodies chan struct{} // holds a value for each large body that waits
}

// NewReader returns a reader. wait is how long a request waits for its turn; 0: 10 s. With a log,
// the reader ignores unknown properties of requests that allow it, and logs them.
func NewReader(wait time.Duration, unknown *slog.Logger) *Reader {
	rd := &Reader{
		wait:   cmp.Or(wait, bodyWait),
		bodies: make(chan struct{}, MaxBodies), largeBodies: make(chan struct{}, 1), WaitingBodies: make(chan struct{}, MaxBodies),
	}
	if unknown != nil {
		rd.ignored = &ignored{log: unknown}
	}
	return rd
}

// BodyTurn is the right to read a body.
type BodyTurn struct {
	reader *Reader
	ctx    context.Context
	place  chan struct{} // the queue that it holds a place of; nil: none
}

// AcquireBody waits until the request may be read.
func (rd *Reader) AcquireBody(ctx context.Context) (*BodyTurn, *Problem) {
	t := &BodyTurn{reader: rd, ctx: ctx}
	if !t.acquire(rd.bodies) {
		return nil, Refuse(http.StatusServiceUnavailable, "%d other requests with a body are being read: try again", MaxBodies)
	}
	return t, nil
}

func (t *BodyTurn) acquire(places chan struct{}) bool {
	wait := time.NewTimer(t.reader.wait)
	defer wait.Stop()
	select {
	case places <- struct{}{}:
		t.place = places
		return true
	case <-t.ctx.Done():
	case <-wait.C:
	}
	return false
}

// acquireLarge waits until no other large body is read. While it waits, it releases its place among
// all bodies, so small bodies do not wait for large ones. The number of waiting requests is
// bounded, since their partial bodies are in memory.
func (t *BodyTurn) acquireLarge() *Problem {
	if t == nil { // the request has another limit
		return nil
	}
	refused := Refuse(http.StatusServiceUnavailable, "another request with a body of more than %d MiB is being read: try again", MaxSmall>>20)
	select {
	case t.reader.WaitingBodies <- struct{}{}:
		defer func() { <-t.reader.WaitingBodies }()
	default:
		return refused
	}
	t.Done()
	if !t.acquire(t.reader.largeBodies) {
		return refused
	}
	return nil
}

// Done releases the place.
func (t *BodyTurn) Done() {
	if t.place != nil {
		<-t.place
		t.place = nil
	}
}

// Decode reads and decodes the body of a request. It releases its place before it returns, so a
// request that waits for the data path does not delay others.
func Decode[T any](rd *Reader, w http.ResponseWriter, r *http.Request, decode func([]byte) (T, *Problem)) (out T, p *Problem) {
	turn, p := rd.AcquireBody(r.Context())
	if p != nil {
		return out, p
	}
	defer turn.Done()
	data, p := ReadBody(w, r, turn)
	if p != nil {
		return out, p
	}
	return decode(data)
}

// ReadBody reads the body of a request whose Content-Type is JSON or missing.
func ReadBody(w http.ResponseWriter, r *http.Request, turn *BodyTurn) ([]byte, *Problem) {
	if ct := r.Header.Get("Content-Type"); ct != "" {
		if media, _, err := mime.ParseMediaType(ct); err != nil || media != "application/json" {
			return nil, RefuseField(http.StatusUnsupportedMediaType, "Content-Type", ct, "is not JSON", "application/json")
		}
	}
	return ReadAll(w, r, turn)
}

// ReadAll reads the body of a request. Memory grows with the received bytes, not with
// Content-Length.
func ReadAll(w http.ResponseWriter, r *http.Request, turn *BodyTurn) ([]byte, *Problem) {
	if r.ContentLength > MaxBody {
		return nil, tooLarge()
	}
	buf := bytes.NewBuffer(make([]byte, 0, bytes.MinRead+min(max(0, r.ContentLength), maxTrusted)))
	body := http.MaxBytesReader(w, r.Body, MaxBody)
	_, err := buf.ReadFrom(io.LimitReader(body, MaxSmall))
	if err == nil && buf.Len() == MaxSmall {
		if p := turn.acquireLarge(); p != nil {
			return nil, p
		}
		_, err = buf.ReadFrom(body)
	}
	var tooBig *http.MaxBytesError
	switch {
	case errors.As(err, &tooBig) && tooBig.Limit < MaxBody:
		return nil, Refuse(http.StatusRequestEntityTooLarge, "the body is larger than the %d bytes that it may have", tooBig.Limit)
	case errors.As(err, &tooBig):
		return nil, tooLarge()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, Refuse(http.StatusBadRequest, "the body did not arrive in time: send it without pauses")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, Refuse(http.StatusBadRequest, "the body is shorter than its Content-Length: the connection ended early")
	case err != nil:
		return nil, Refuse(http.StatusBadRequest, "reading the body failed: %v", err)
	}
	return buf.Bytes(), nil
}

func tooLarge() *Problem {
	return Refuse(http.StatusRequestEntityTooLarge, "the body is larger than %d MiB: send the services in several requests", MaxBody>>20)
}
