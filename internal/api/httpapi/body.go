package httpapi

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"time"
)

const (
	// maxBody holds all the services and endpoints that there may be, indented, with room to spare.
	maxBody = 64 << 20
	// maxBodies is how many requests are read and decoded at once, over all connections: it bounds
	// the memory that they take.
	maxBodies = 8
	// maxSmall is how large a body may be that is decoded beside others: of larger ones, one at a
	// time is.
	maxSmall = 4 << 20
	// maxTrusted is how much memory a body gets for what the request says of its length alone.
	maxTrusted = 16 << 10
	// bodyWait is how long a request waits for its turn.
	bodyWait = 10 * time.Second
)

// bodyTurn is the right to read a body.
type bodyTurn struct {
	a     *API
	ctx   context.Context
	place chan struct{} // where it has a place; nil: nowhere
}

// takeBody waits until the request may be read.
func (a *API) takeBody(ctx context.Context) (*bodyTurn, *problem) {
	t := &bodyTurn{a: a, ctx: ctx}
	if !t.take(a.bodies) {
		return nil, refuse(http.StatusServiceUnavailable, "%d other requests with a body are being read: try again", maxBodies)
	}
	return t, nil
}

func (t *bodyTurn) take(places chan struct{}) bool {
	wait := time.NewTimer(t.a.BodyWait)
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

// takeLarge waits until no other large body is read. Its place among all is another one's
// meanwhile, so that small bodies do not wait for large ones. So many wait at most, as what has
// come of each is in memory.
func (t *bodyTurn) takeLarge() *problem {
	if t == nil { // it has a bound of its own
		return nil
	}
	refused := refuse(http.StatusServiceUnavailable, "another request with a body of more than %d MiB is being read: try again", maxSmall>>20)
	select {
	case t.a.waitingBodies <- struct{}{}:
		defer func() { <-t.a.waitingBodies }()
	default:
		return refused
	}
	t.done()
	if !t.take(t.a.largeBodies) {
		return refused
	}
	return nil
}

// done gives the place to another one.
func (t *bodyTurn) done() {
	if t.place != nil {
		<-t.place
		t.place = nil
	}
}

// decoded reads the body of a request and makes something of it. It is done with the body when it
// returns: a request that waits for the data path holds up no other one.
func decoded[T any](a *API, w http.ResponseWriter, r *http.Request, decode func([]byte) (T, *problem)) (out T, p *problem) {
	turn, p := a.takeBody(r.Context())
	if p != nil {
		return out, p
	}
	defer turn.done()
	data, p := readBody(w, r, turn)
	if p != nil {
		return out, p
	}
	return decode(data)
}

// readBody takes the body of a request that says it is JSON, or says nothing.
func readBody(w http.ResponseWriter, r *http.Request, turn *bodyTurn) ([]byte, *problem) {
	if ct := r.Header.Get("Content-Type"); ct != "" {
		if media, _, err := mime.ParseMediaType(ct); err != nil || media != "application/json" {
			return nil, refuseField(http.StatusUnsupportedMediaType, "Content-Type", ct, "is not JSON", "application/json")
		}
	}
	return readAll(w, r, turn)
}

// readAll takes the body of a request. Memory grows with what has come, not with what the request
// says will come.
func readAll(w http.ResponseWriter, r *http.Request, turn *bodyTurn) ([]byte, *problem) {
	if r.ContentLength > maxBody {
		return nil, tooLarge()
	}
	buf := bytes.NewBuffer(make([]byte, 0, bytes.MinRead+min(max(0, r.ContentLength), maxTrusted)))
	body := http.MaxBytesReader(w, r.Body, maxBody)
	_, err := buf.ReadFrom(io.LimitReader(body, maxSmall))
	if err == nil && buf.Len() == maxSmall {
		if p := turn.takeLarge(); p != nil {
			return nil, p
		}
		_, err = buf.ReadFrom(body)
	}
	var tooBig *http.MaxBytesError
	switch {
	case errors.As(err, &tooBig) && tooBig.Limit < maxBody:
		return nil, refuse(http.StatusRequestEntityTooLarge, "the body is larger than the %d bytes that it may have", tooBig.Limit)
	case errors.As(err, &tooBig):
		return nil, tooLarge()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, refuse(http.StatusBadRequest, "the body did not come in time: send it without pauses")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, refuse(http.StatusBadRequest, "the body is shorter than its Content-Length says: it broke off")
	case err != nil:
		return nil, refuse(http.StatusBadRequest, "the body broke off: %v", err)
	}
	return buf.Bytes(), nil
}

func tooLarge() *problem {
	return refuse(http.StatusRequestEntityTooLarge, "the body is larger than %d MiB: send the services in several requests", maxBody>>20)
}
