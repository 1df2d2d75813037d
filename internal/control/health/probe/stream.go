package probe

import (
	"context"
	"io"
	"net"
	"time"
)

// stream connects by TCP, sends the request, and searches the answer for the response.
type stream struct{ q Question }

func (s stream) Probe(ctx context.Context) (Answer, error) {
	start := time.Now()
	c, err := dial(ctx, "tcp", s.q)
	if err != nil {
		return Answer{}, plain(s.q, err)
	}
	defer c.Close()
	defer interrupt(ctx, c)()
	if _, err := io.WriteString(c, s.q.Probe.Request); err != nil {
		return Answer{}, plain(s.q, err)
	}
	if err := look(s.q, c, s.q.Probe.Response); err != nil {
		return Answer{}, err
	}
	return Answer{What: "answered", Delay: time.Since(start)}, nil
}

// interrupt ends blocking calls on a connection when ctx ends, until stop is called.
func interrupt(ctx context.Context, c net.Conn) (stop func() bool) {
	return context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
}
