package announce

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// socket sends frames and, as it has no protocol, receives none. After a failure it is closed, and
// the next frame opens another one.
type socket struct {
	network Network
	fd      int // -1: to be opened
}

func (s *socket) open() error {
	if s.fd >= 0 {
		return nil
	}
	err := s.network.Do(func() (err error) {
		s.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		s.fd = -1
		return fmt.Errorf("open packet socket: %w", err)
	}
	return nil
}

func (s *socket) close() {
	if s.fd >= 0 {
		_ = unix.Close(s.fd)
	}
	s.fd = -1
}

// send sends an announcement. It ignores a link that is down or gone, whose VIPs are announced when
// it comes up again.
func (s *socket) send(p pendingAnnouncement) error {
	return s.sendFrame(p.vipLink, frame(p.vip, net.HardwareAddr(p.mac)))
}

// sendFrame sends a frame that is about a VIP on a link.
func (s *socket) sendFrame(p vipLink, frame []byte) error {
	if err := s.open(); err != nil {
		return err
	}
	err := unix.Sendto(s.fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: p.link, Halen: 6})
	if err == nil || errors.Is(err, unix.ENETDOWN) || errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	s.close()
	return fmt.Errorf("announce %s on interface %d: %w", p.vip, p.link, err)
}
