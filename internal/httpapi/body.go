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
	// maxBodies is how many requests are read and decoded at once, over all connections: it bounds the memory that they take.
	maxBodies = 8
	// maxTrusted is how much memory a body gets for what the request says of its length alone.
	maxTrusted = 16 << 10
	// bodyWait is how long a request waits for its turn.
	bodyWait = 10 * time.Second
)

// takeBody waits until the request may be read. done gives its place to another one.
func (a *API) takeBody(ctx context.Context) (done func(), p *problem) {
	wait := time.NewTimer(a.BodyWait)
	defer wait.Stop()
	select {
	case a.bodies <- struct{}{}:
		return func() { <-a.bodies }, nil
	case <-ctx.Done():
	case <-wait.C:
	}
	return nil, refuse(http.StatusServiceUnavailable, "%d other requests with a body are being read: try again", maxBodies)
}

// decoded reads the body of a request and makes something of it. It is done with the body when it returns: a request
// that waits for the data path holds up no other one.
func decoded[T any](a *API, w http.ResponseWriter, r *http.Request, decode func([]byte) (T, *problem)) (out T, p *problem) {
	done, p := a.takeBody(r.Context())
	if p != nil {
		return out, p
	}
	defer done()
	data, p := readBody(w, r)
	if p != nil {
		return out, p
	}
	return decode(data)
}

// readBody takes the body of a request that says it is JSON, or says nothing.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, *problem) {
	if ct := r.Header.Get("Content-Type"); ct != "" {
		if media, _, err := mime.ParseMediaType(ct); err != nil || media != "application/json" {
			return nil, refuseField(http.StatusUnsupportedMediaType, "Content-Type", ct, "is not JSON", "application/json")
		}
	}
	return readAll(w, r)
}

// readAll takes the body of a request. Memory grows with what has come, not with what the request says will come.
func readAll(w http.ResponseWriter, r *http.Request) ([]byte, *problem) {
	if r.ContentLength > maxBody {
		return nil, tooLarge()
	}
	buf := bytes.NewBuffer(make([]byte, 0, bytes.MinRead+min(max(0, r.ContentLength), maxTrusted)))
	_, err := buf.ReadFrom(http.MaxBytesReader(w, r.Body, maxBody))
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
