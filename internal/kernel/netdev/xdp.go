package netdev

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"loxilb/internal/event"
	"loxilb/internal/host/monotime"
	"loxilb/internal/host/retry"
	"loxilb/internal/kernel/netdev/netlink"
)

// XDPFeatures are the present XDP features of an interface (enum netdev_xdp_act). It changes: a
// veth accepts redirected frames only while its other end has a program or GRO, and some drivers
// only while they have a program themselves.
type XDPFeatures uint64

// The features that matter to a program that forwards.
const (
	XDPBasic    XDPFeatures = 1 // the driver runs programs
	XDPRedirect XDPFeatures = 2 // ... that redirect frames
	XDPTransmit XDPFeatures = 4 // the interface sends frames that are redirected to it
)

// Numbers of the generic netlink family "netdev" (Linux 6.3), and of the controller family that
// finds it.
const (
	netdevDevGet      = 1 // NETDEV_CMD_DEV_GET
	netdevIfindex     = 1 // NETDEV_A_DEV_IFINDEX
	netdevXDPFeatures = 3 // NETDEV_A_DEV_XDP_FEATURES

	// xdpReceiveBytes is the receive buffer for notifications of features.
	xdpReceiveBytes = 256 << 10

	genericHeader     = 4 // struct genlmsghdr: command, version, 2 bytes
	controlFamilyName = 2 // CTRL_ATTR_FAMILY_NAME
)

// xdpFeatures asks the generic netlink family "netdev" what interfaces can do, and follows its
// changes.
type xdpFeatures struct {
	family       uint16
	group        int // multicast group of its notifications
	subscription *netlink.Subscription

	mu   sync.Mutex
	conn *netlink.Conn
}

// openXDPFeatures finds the family. It returns nil if the kernel has none.
func openXDPFeatures(ns *netlink.Namespace) (*xdpFeatures, error) {
	conn, err := ns.DialGeneric()
	if err != nil {
		return nil, err
	}
	x := &xdpFeatures{conn: conn}
	ask := netlink.NewRequest(unix.GENL_ID_CTRL, 0, []byte{unix.CTRL_CMD_GETFAMILY, 1, 0, 0})
	answer, err := conn.One(ask.Attr(controlFamilyName, []byte("netdev\x00")))
	if err != nil {
		_ = conn.Close()
		if errors.Is(err, unix.ENOENT) {
			return nil, nil
		}
		return nil, fmt.Errorf("find the netlink family of XDP features: %w", err)
	}
	netlink.Attributes(answer, genericHeader, func(typ uint16, v []byte) {
		switch typ {
		case unix.CTRL_ATTR_FAMILY_ID:
			x.family = binary.NativeEndian.Uint16(v)
		case unix.CTRL_ATTR_MCAST_GROUPS:
			x.group = firstGroup(v)
		}
	})
	if x.subscription, err = ns.SubscribeGeneric(xdpReceiveBytes, x.group); err != nil {
		return nil, errors.Join(err, x.close())
	}
	return x, nil
}

// firstGroup returns the id of the first multicast group in the list: it is "mgmt", which reports
// changes of interfaces.
func firstGroup(list []byte) (id int) {
	netlink.Attributes(list, 0, func(_ uint16, group []byte) {
		netlink.Attributes(group, 0, func(typ uint16, v []byte) {
			if typ == unix.CTRL_ATTR_MCAST_GRP_ID && id == 0 {
				id = int(netlink.Uint32(v))
			}
		})
	})
	return id
}

func (x *xdpFeatures) close() error {
	if x == nil {
		return nil
	}
	return errors.Join(x.subscription.Close(), x.conn.Close())
}

// XDPFeatures lists the features of each interface by index. It returns nil if the kernel does not
// report them (before Linux 6.3).
func (n *Net) XDPFeatures() (map[int]XDPFeatures, error) {
	x := n.features
	if x == nil {
		return nil, nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	out := map[int]XDPFeatures{}
	err := x.conn.Dump(x.family, []byte{netdevDevGet, 1, 0, 0}, func(m netlink.Message) {
		var index int
		var features XDPFeatures
		netlink.Attributes(m.Body, genericHeader, func(typ uint16, v []byte) {
			switch {
			case typ == netdevIfindex:
				index = int(netlink.Uint32(v))
			case typ == netdevXDPFeatures && len(v) == 8:
				features = XDPFeatures(binary.NativeEndian.Uint64(v))
			}
		})
		out[index] = features
	})
	if err != nil {
		return nil, fmt.Errorf("list XDP features: %w", err)
	}
	return out, nil
}

// followXDP publishes an event of a link when its features change; after a loss, an event of each
// link.
func (n *Net) followXDP(ctx context.Context, hub *event.Hub) {
	if n.features == nil {
		return
	}
	loop := retry.New("changes of XDP features are followed", n.log)
	for ctx.Err() == nil {
		err := n.features.subscription.Receive(ctx, func(m netlink.Message) {
			netlink.Attributes(m.Body, genericHeader, func(typ uint16, v []byte) {
				if typ != netdevIfindex {
					return
				}
				if l := n.mirror.Link(int(netlink.Uint32(v))); l.Index != 0 {
					hub.Publish(l.Event(event.Changed))
				}
			})
		})
		if err == nil {
			continue
		}
		for ctx.Err() == nil {
			if err = n.features.recover(n.ns, err); err == nil {
				loop.Worked()
				break
			}
			monotime.Sleep(ctx, loop.Failed(err))
		}
		for _, l := range n.mirror.Links() {
			hub.Publish(l.Event(event.Changed))
		}
	}
}

// recover makes the subscription usable again: after an overrun it drops queued messages, after a
// failure it opens another socket.
func (x *xdpFeatures) recover(ns *netlink.Namespace, err error) error {
	if errors.Is(err, netlink.ErrOverrun) {
		return x.subscription.Drain()
	}
	fresh, err := ns.SubscribeGeneric(xdpReceiveBytes, x.group)
	if err != nil {
		return err
	}
	err = x.subscription.Close()
	x.subscription = fresh
	return err
}
