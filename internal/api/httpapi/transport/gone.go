package transport

import (
	"context"

	"golang.org/x/sys/unix"
)

// IsSenderGone reports whether the client of a request has closed its TCP connection without
// waiting for the answer. A process that was stopped still finds such requests when it continues,
// however old they are. The context of the request also ends then, but only some time after the
// handler has begun.
func IsSenderGone(ctx context.Context) (gone bool) {
	w, ok := ctx.Value(limitedConnKey{}).(*limitedConn)
	if !ok {
		return false
	}
	err := onSocket(w.Conn, func(fd int) error {
		closed := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, err := unix.Poll(closed, 0)
		gone = err == nil && n > 0
		return nil
	})
	return gone || err != nil
}
