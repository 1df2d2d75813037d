package netdev

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// XDPFeatures is what an interface can do for XDP now (enum netdev_xdp_act). It changes: a veth takes redirected frames
// only while its other end has a program or GRO, and some drivers only while they have a program themselves.
type XDPFeatures uint64

// The features that matter to a program that forwards.
const (
	XDPBasic    XDPFeatures = 1 // it runs programs itself
	XDPRedirect XDPFeatures = 2 // ... that redirect frames
	XDPTransmit XDPFeatures = 4 // it sends frames that are redirected to it
)

// Numbers of the generic netlink family "netdev" (Linux 6.3), and of the one that finds it.
const (
	netdevDevGet      = 1 // NETDEV_CMD_DEV_GET
	netdevIfindex     = 1 // NETDEV_A_DEV_IFINDEX
	netdevXDPFeatures = 3 // NETDEV_A_DEV_XDP_FEATURES

	genericHeader     = 4 // struct genlmsghdr: command, version, 2 bytes
	controlFamilyName = 2 // CTRL_ATTR_FAMILY_NAME
)

// generic speaks to the family "netdev".
type generic struct {
	conn   *conn
	family uint16
	group  int      // of its news
	watch  *os.File // nil: no news
}

// openGeneric finds the family. Nil: the kernel has none.
func (n *namespace) openGeneric() (*generic, error) {
	c, err := n.dialFamily(unix.NETLINK_GENERIC)
	if err != nil {
		return nil, err
	}
	g := &generic{conn: c}
	ask := newRequest(unix.GENL_ID_CTRL, 0, []byte{unix.CTRL_CMD_GETFAMILY, 1, 0, 0})
	answer, err := c.one(ask.attr(controlFamilyName, []byte("netdev\x00")))
	if err != nil {
		_ = c.close()
		if errors.Is(err, unix.ENOENT) {
			return nil, nil
		}
		return nil, fmt.Errorf("find the netlink family of XDP features: %w", err)
	}
	attributes(answer, genericHeader, func(typ uint16, v []byte) {
		switch typ {
		case unix.CTRL_ATTR_FAMILY_ID:
			g.family = binary.NativeEndian.Uint16(v)
		case unix.CTRL_ATTR_MCAST_GROUPS:
			g.group = firstGroup(v)
		}
	})
	if err := n.do(g.subscribe); err != nil {
		return nil, errors.Join(err, g.close())
	}
	return g, nil
}

// firstGroup: "mgmt" has the news of interfaces, and is the first.
func firstGroup(list []byte) (id int) {
	attributes(list, 0, func(_ uint16, group []byte) {
		attributes(group, 0, func(typ uint16, v []byte) {
			if typ == unix.CTRL_ATTR_MCAST_GRP_ID && id == 0 {
				id = int(u32(v))
			}
		})
	})
	return id
}

func (g *generic) subscribe() error {
	fd, err := netlinkSocket(unix.NETLINK_GENERIC, unix.SOCK_NONBLOCK)
	if err != nil {
		return err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, g.group); err != nil {
		_ = unix.Close(fd)
		return fmt.Errorf("subscribe to XDP features: %w", err)
	}
	g.watch = os.NewFile(uintptr(fd), "netlink")
	return nil
}

func (g *generic) close() error {
	if g == nil {
		return nil
	}
	var err error
	if g.watch != nil {
		err = g.watch.Close()
	}
	return errors.Join(err, g.conn.close())
}

// XDPFeatures lists what each interface can do for XDP, by index. Nil: the kernel does not tell (before Linux 6.3).
func (n *Net) XDPFeatures() (map[int]XDPFeatures, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.generic == nil {
		return nil, nil
	}
	out := map[int]XDPFeatures{}
	err := n.generic.conn.dump(n.generic.family, []byte{netdevDevGet, 1, 0, 0}, func(r reply) error {
		var index int
		var features XDPFeatures
		attributes(r.body, genericHeader, func(typ uint16, v []byte) {
			switch {
			case typ == netdevIfindex:
				index = int(u32(v))
			case typ == netdevXDPFeatures && len(v) == 8:
				features = XDPFeatures(binary.NativeEndian.Uint64(v))
			}
		})
		out[index] = features
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list XDP features: %w", err)
	}
	return out, nil
}

// followXDP makes news of features, and news that were lost, an event of links.
func (n *Net) followXDP(ctx context.Context, events *inbox) {
	if n.generic == nil {
		return
	}
	watch := n.generic.watch
	_ = watch.SetReadDeadline(time.Time{})
	stop := context.AfterFunc(ctx, func() { _ = watch.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	buf := make([]byte, replyBytes)
	for {
		_, err := watch.Read(buf)
		if ctx.Err() != nil {
			return
		}
		if err != nil && !errors.Is(err, unix.ENOBUFS) {
			n.log.Error("changes of XDP features are not followed", "err", err)
			return
		}
		events.put(change{links: true})
	}
}
