package transport

import (
	"context"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// socketPeer adds the user of a UNIX socket's connection to its context.
func socketPeer(ctx context.Context, c net.Conn) context.Context {
	return WithPeer(ctx, func() (uint32, error) {
		if _, ok := c.(*net.UnixConn); !ok {
			return 0, ErrNoPeer
		}
		var cred *unix.Ucred
		err := onSocket(c, func(fd int) (err error) {
			cred, err = unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
			return err
		})
		if err != nil {
			return 0, fmt.Errorf("ask for the user of a connection: %w", err)
		}
		return cred.Uid, nil
	})
}
