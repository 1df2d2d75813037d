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
		u, ok := c.(*net.UnixConn)
		if !ok {
			return 0, ErrNoPeer
		}
		raw, err := u.SyscallConn()
		if err != nil {
			return 0, err
		}
		var cred *unix.Ucred
		var credErr error
		if err := raw.Control(func(fd uintptr) { cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
			return 0, err
		}
		if credErr != nil {
			return 0, fmt.Errorf("ask for the user of a connection: %w", credErr)
		}
		return cred.Uid, nil
	})
}
