package netnstest

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// OpenTun creates a tun interface that exists until the file is closed. kind is unix.IFF_TUN for IP
// packets, unix.IFF_TAP for Ethernet frames.
func (h *Host) OpenTun(name string, kind uint16) (tun *os.File, err error) {
	err = h.Do(func() error {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		request := struct {
			name  [unix.IFNAMSIZ]byte
			flags uint16
			_     [22]byte
		}{flags: kind | unix.IFF_NO_PI}
		copy(request.name[:], name)
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TUNSETIFF, uintptr(unsafe.Pointer(&request))); errno != 0 {
			_ = unix.Close(fd)
			return errno
		}
		tun = os.NewFile(uintptr(fd), name)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("make %s in %s: %w", name, h.Name, err)
	}
	return tun, nil
}
