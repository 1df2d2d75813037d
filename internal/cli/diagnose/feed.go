package diagnose

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/session"
)

// retryAfter is the pause before reconnecting to a server.
const retryAfter = time.Second

// feed receives rates from the server, for one query at a time.
type feed struct {
	session *session.Options
	ctx     context.Context //nolint:containedctx // of the whole program
	cancel  context.CancelFunc
	number  int // of the current query
}

// queryResult is the server's answer to a query, or the error.
type queryResult struct {
	number int
	update *v1.RatesUpdate
	err    error
}

// request starts a query, and cancels the previous one. It reconnects when the server comes back.
func (f *feed) request(params v1.WatchRatesParams, send func(queryResult)) {
	if f.cancel != nil {
		f.cancel()
	}
	f.number++
	number := f.number
	ctx, cancel := context.WithCancel(f.ctx)
	f.cancel = cancel
	own := *f.session // each query has its own connection
	go func() {
		for ctx.Err() == nil {
			err := follow(ctx, &own, params, func(u *v1.RatesUpdate) error {
				send(queryResult{number: number, update: u})
				return nil
			})
			if ctx.Err() != nil {
				return
			}
			send(queryResult{number: number, err: err})
			select {
			case <-ctx.Done():
			case <-time.After(retryAfter):
			}
		}
	}()
}

// follow calls show with each update until that fails, or the stream ends.
func follow(ctx context.Context, o *session.Options, params v1.WatchRatesParams, show func(*v1.RatesUpdate) error) error {
	return o.Follow(ctx, func(client *v1.Client, asStream v1.RequestEditorFn) (*http.Response, error) {
		return client.WatchRates(ctx, &params, asStream)
	}, func(data json.RawMessage) error {
		var u v1.RatesUpdate
		if err := session.Decode(data, &u); err != nil {
			return err
		}
		return show(&u)
	})
}

// refusal reports whether the server has refused the query.
func refusal(err error) bool {
	var f *session.Failure
	return errors.As(err, &f) && f.Code == session.ExitRefused
}
