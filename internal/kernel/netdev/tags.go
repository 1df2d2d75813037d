package netdev

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// HidesTags reports whether a link's driver removes VLAN tags from received frames, so that XDP
// does not see them. A veth passes the tag in metadata, whatever its offloads say. A driver that
// cannot be queried is assumed to.
func (n *Net) HidesTags(l Link) bool {
	const (
		getFlags = 0x25   // ETHTOOL_GFLAGS
		rxVLAN   = 1 << 8 // ETH_FLAG_RXVLAN
	)
	if l.Kind == "veth" || len(l.Name) >= unix.IFNAMSIZ {
		return true
	}
	value := struct{ command, flags uint32 }{command: getFlags}
	var request struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		rest [16]byte
	}
	copy(request.name[:], l.Name)
	request.data = unsafe.Pointer(&value)
	err := n.ns.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd) //nolint:errcheck // nothing was written
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request))); errno != 0 {
			return errno
		}
		return nil
	})
	return err != nil || value.flags&rxVLAN != 0
}
