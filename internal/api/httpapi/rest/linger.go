package rest

import (
	"context"
	"net/http"
	"time"
)

// lingerTime is how long a request goes on after its client has sent the end of its data: longer
// than a change waits for the data path.
const lingerTime = 10 * time.Second

// clientKey is the context key of the context that ends with the client's data.
type clientKey struct{}

// Linger returns a context that outlives the client's end of data. The context of a request ends
// with it, but a client that closes only its direction (nc -N, socat) still reads the answer, which
// would be empty. Streams, which have no end of their own, end with the client all the same.
func Linger(client context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithValue(context.WithoutCancel(client), clientKey{}, client))
	stop := context.AfterFunc(client, func() {
		late := time.NewTimer(lingerTime)
		defer late.Stop()
		select {
		case <-late.C:
			cancel()
		case <-ctx.Done():
		}
	})
	return ctx, func() { stop(); cancel() }
}

// clientOf returns the context that ends with the client's data.
func clientOf(r *http.Request) context.Context {
	if ctx, ok := r.Context().Value(clientKey{}).(context.Context); ok {
		return ctx
	}
	return r.Context()
}
