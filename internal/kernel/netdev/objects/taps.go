package objects

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	nl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"loxilb/internal/kernel/netdev/netlink"
)

// Tap is a tunnel for copies of packets to a collector.
type Tap struct {
	ERSPAN         bool // otherwise VXLAN
	Remote, Source netip.Addr
	ID             uint32 // of the session, or the VNI
}

// TapPrefix begins the names of tunnels to collectors.
const TapPrefix = "llbm"

// tapGroup is the group of these tunnels, the only mark that an interface can get when it is
// created.
const tapGroup = 109

// Numbers of the kernel's uapi that x/sys/unix does not have (linux/if_tunnel.h).
const (
	iflaGREIFlags      = 2
	iflaGREOFlags      = 3
	iflaGREIKey        = 4
	iflaGREOKey        = 5
	iflaGRELocal       = 6
	iflaGRERemote      = 7
	iflaGRETTL         = 8
	iflaGREERSPANIndex = 21
	iflaGREERSPANVer   = 22

	greKey, greSequence = 0x2000, 0x1000
	tunnelTTL           = 64
)

// Name returns the interface's name, which encodes the tunnel's properties, so an existing
// interface has the right ones.
func (t Tap) Name() string {
	sum := sha256.Sum256(fmt.Append(nil, t.ERSPAN, t.Remote, t.Source, t.ID))
	return TapPrefix + hex.EncodeToString(sum[:5])
}

// MakeTap makes the tunnel, if it does not exist, and sets it up.
func (k *Kernel) MakeTap(t Tap) error {
	l, err := k.nl.LinkByName(t.Name())
	if err == nil && l.Attrs().Flags&net.FlagUp != 0 {
		return nil
	}
	if err == nil {
		return k.nl.LinkSetUp(l)
	}
	if !errors.As(err, new(nl.LinkNotFoundError)) {
		return err
	}
	if t.ERSPAN {
		err = k.makeERSPAN(t)
	} else {
		err = k.makeVXLANTap(t)
	}
	if errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("this kernel has no such tunnels (module %s): %w", t.module(), err)
	}
	if err != nil {
		return fmt.Errorf("make a tunnel to %s: %w", t.Remote, err)
	}
	return nil
}

func (t Tap) module() string {
	switch {
	case !t.ERSPAN:
		return "vxlan"
	case t.Remote.Is4():
		return "ip_gre"
	default:
		return "ip6_gre"
	}
}

func (k *Kernel) makeVXLANTap(t Tap) error {
	attrs := nl.NewLinkAttrs()
	attrs.Name, attrs.Group, attrs.Flags = t.Name(), tapGroup, net.FlagUp
	return k.nl.LinkAdd(&nl.Vxlan{LinkAttrs: attrs, VxlanId: int(t.ID), Group: t.Remote.AsSlice(), SrcAddr: t.Source.AsSlice(), Port: vxlanPort, Learning: false, TTL: tunnelTTL})
}

// makeERSPAN makes a tunnel like `ip link add NAME type erspan local SOURCE remote REMOTE key ID
// seq erspan_ver 1 erspan ID`.
func (k *Kernel) makeERSPAN(t Tap) error {
	conn, err := k.ns.Dial()
	if err != nil {
		return err
	}
	_, err = conn.One(t.erspanRequest())
	return errors.Join(err, conn.Close())
}

func (t Tap) erspanRequest() *netlink.Request {
	kind := "erspan"
	if !t.Remote.Is4() {
		kind = "ip6erspan"
	}
	flags, key := binary.BigEndian.AppendUint16(nil, greKey|greSequence), binary.BigEndian.AppendUint32(nil, t.ID)
	data := netlink.NewRequest(0, 0, nil).Attr(iflaGREIKey, key).Attr(iflaGREOKey, key).Attr(iflaGREIFlags, flags).Attr(iflaGREOFlags, flags).
		Attr(iflaGRELocal, t.Source.AsSlice()).Attr(iflaGRERemote, t.Remote.AsSlice()).Attr(iflaGRETTL, []byte{tunnelTTL}).
		Attr(iflaGREERSPANVer, []byte{1}).Attr32(iflaGREERSPANIndex, t.ID)
	info := netlink.NewRequest(0, 0, nil).Attr(unix.IFLA_INFO_KIND, []byte(kind)).Attr(unix.IFLA_INFO_DATA, data.Body())
	header := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(header[8:], unix.IFF_UP)
	binary.NativeEndian.PutUint32(header[12:], unix.IFF_UP)
	return netlink.NewRequest(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK, header).
		Attr(unix.IFLA_IFNAME, append([]byte(t.Name()), 0)).Attr32(unix.IFLA_GROUP, tapGroup).Attr(unix.IFLA_LINKINFO, info.Body())
}

// KeepTaps removes loxilb's tunnels that are no longer needed, including those of earlier
// processes.
func (k *Kernel) KeepTaps(wanted func(name string) bool) error {
	links, err := k.links()
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range links {
		a := l.Attrs()
		if !strings.HasPrefix(a.Name, TapPrefix) || a.Group != tapGroup || wanted(a.Name) {
			continue
		}
		if err := k.nl.LinkDel(l); err != nil && !errors.Is(err, unix.ENODEV) {
			errs = append(errs, fmt.Errorf("remove the tunnel %s: %w", a.Name, err))
		}
	}
	return errors.Join(errs...)
}
