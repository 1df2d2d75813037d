package netlink

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Neighbour queries the state (NUD_*) of one neighbour. It returns unix.ENOENT if there is none.
func (c *Conn) Neighbour(link int, a netip.Addr) (state uint16, err error) {
	header := Header(Family(a), unix.SizeofNdMsg)
	binary.NativeEndian.PutUint32(header[4:], uint32(link))
	r := NewRequest(unix.RTM_GETNEIGH, 0, header).Attr(unix.NDA_DST, a.AsSlice())
	r.isAnswered = true
	answer, err := c.One(r)
	if err == nil && len(answer) < unix.SizeofNdMsg {
		err = errors.New("netlink neighbour message cut short")
	}
	if err != nil {
		return 0, err
	}
	return binary.NativeEndian.Uint16(answer[8:]), nil
}
