package netdev

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// step is one change: a VIP and its place.
type step struct {
	addr netip.Addr
	place
}

// put adds each step's VIP to its place. One that is there already is ours if it was before.
func (v *VIPs) put(ctx context.Context, steps []step) error {
	if len(steps) == 0 {
		return nil
	}
	v.net.state.own(steps, len(v.want))
	requests := make([]*request, len(steps))
	for i, s := range steps {
		requests[i] = s.request(true)
	}
	return v.send(ctx, requests, func(i int, _ []byte, err error) {
		s := steps[i]
		name := v.net.linkName(s.link)
		switch {
		case err == nil:
			v.note(s)
		case errors.Is(err, unix.EEXIST):
		case errors.Is(err, unix.EACCES) && s.addr.Is6():
			v.failed[s.addr] = Problem{
				What: fmt.Sprintf("VIP %s cannot be added to %s: IPv6 is switched off there", s.addr, name),
				Mend: fmt.Sprintf("set net.ipv6.conf.%s.disable_ipv6=0", name),
			}
		default:
			v.failed[s.addr] = Problem{
				What: fmt.Sprintf("VIP %s cannot be added to %s: %v", s.addr, name, err),
				Mend: fmt.Sprintf("add it by hand: ip address add %s dev %s", s.addr, name),
			}
		}
	})
}

// takeAway removes each step's VIP from its place; one that is gone already is fine.
func (v *VIPs) takeAway(ctx context.Context, steps []step) error {
	requests := make([]*request, len(steps))
	for i, s := range steps {
		requests[i] = s.request(false)
	}
	var failed []error
	err := v.send(ctx, requests, func(i int, _ []byte, err error) {
		s := steps[i]
		switch {
		case err == nil, errors.Is(err, unix.EADDRNOTAVAIL), errors.Is(err, unix.ESRCH), errors.Is(err, unix.ENODEV):
			v.drop(s)
		default:
			failed = append(failed, fmt.Errorf("remove VIP %s from %s: %w", s.addr, v.net.linkName(s.link), err))
		}
	})
	return errors.Join(err, firstOf(failed))
}

// firstOf keeps a long list readable.
func firstOf(errs []error) error {
	const shown = 5
	if len(errs) > shown {
		more := fmt.Errorf("and %d more", len(errs)-shown)
		errs = append(errs[:shown:shown], more)
	}
	return errors.Join(errs...)
}

func (v *VIPs) note(s step) {
	if slices.Contains(v.have[s.addr], s.place) {
		return
	}
	v.have[s.addr] = append(v.have[s.addr], s.place)
	if v.isLoAddress(s) {
		v.onLo++
	}
}

func (v *VIPs) drop(s step) {
	i := slices.Index(v.have[s.addr], s.place)
	if i < 0 {
		return
	}
	if v.isLoAddress(s) {
		v.onLo--
	}
	if v.have[s.addr] = slices.Delete(v.have[s.addr], i, i+1); len(v.have[s.addr]) == 0 {
		delete(v.have, s.addr)
	}
}

func (v *VIPs) isLoAddress(s step) bool { return !s.route && v.net.link(s.link).Loopback() }

// adopt finds what an earlier process left: addresses that the state has read, and local routes.
func (v *VIPs) adopt() error {
	for a, list := range v.net.state.addresses {
		for _, have := range list {
			if have.ours && have.prefix.IsSingleIP() {
				v.note(step{addr: a, place: place{link: have.link}})
			}
		}
	}
	var left []step
	for a, places := range v.have {
		for _, p := range places {
			left = append(left, step{addr: a, place: p})
		}
	}
	v.net.state.own(left, 0)
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		header := routeHeader(family, Owner)
		header[4], header[7] = unix.RT_TABLE_LOCAL, unix.RTN_LOCAL
		err := v.route.dump(unix.RTM_GETROUTE, header, func(r reply) error {
			if rt, ok := parseRoute(r.body); ok && rt.proto == Owner && rt.dst.IsSingleIP() {
				v.note(step{addr: rt.dst.Addr(), place: place{link: rt.oif, route: true}})
			}
			return nil
		})
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("list local routes: %w", err)
		}
	}
	return nil
}

// send is batch in slices, so that ctx can end it.
func (v *VIPs) send(ctx context.Context, requests []*request, done func(int, []byte, error)) error {
	const slice = 512
	for start := 0; start < len(requests); start += slice {
		if err := ctx.Err(); err != nil {
			return err
		}
		part := requests[start:min(start+slice, len(requests))]
		err := v.route.batch(part, func(i int, answer []byte, err error) { done(start+i, answer, err) })
		if err != nil {
			return err
		}
	}
	return nil
}

func (v *VIPs) setUp(l Link) error {
	header := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(header[4:], uint32(l.Index))
	binary.NativeEndian.PutUint32(header[8:], unix.IFF_UP)
	binary.NativeEndian.PutUint32(header[12:], unix.IFF_UP)
	_, err := v.route.one(newRequest(unix.RTM_NEWLINK, 0, header))
	return err
}

func (s step) request(add bool) *request {
	if s.route {
		return s.routeRequest(add)
	}
	header := familyHeader(familyOf(s.addr), unix.SizeofIfAddrmsg)
	header[1] = byte(s.addr.BitLen())
	if s.addr.Is4() {
		header[3] = unix.RT_SCOPE_HOST // never the source address of packets that leave
	}
	binary.NativeEndian.PutUint32(header[4:], uint32(s.link))
	if !add {
		return newRequest(unix.RTM_DELADDR, 0, header).attr(unix.IFA_LOCAL, s.addr.AsSlice())
	}
	r := newRequest(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, header).
		attr(unix.IFA_LOCAL, s.addr.AsSlice()).
		attr(unix.IFA_ADDRESS, s.addr.AsSlice()).
		attr32(unix.IFA_FLAGS, unix.IFA_F_NODAD|unix.IFA_F_NOPREFIXROUTE).
		attr(ifaProto, []byte{Owner})
	if s.addr.Is6() {
		// Valid for ever, preferred never: the IPv6 way not to be chosen as source address.
		life := make([]byte, unix.SizeofIfaCacheinfo)
		binary.NativeEndian.PutUint32(life[4:], 0xffffffff)
		r.attr(unix.IFA_CACHEINFO, life)
	}
	return r
}

func (s step) routeRequest(add bool) *request {
	header := routeHeader(familyOf(s.addr), Owner)
	header[1] = byte(s.addr.BitLen())
	header[4], header[7] = unix.RT_TABLE_LOCAL, unix.RTN_LOCAL
	header[6] = unix.RT_SCOPE_HOST
	typ, flags := uint16(unix.RTM_DELROUTE), uint16(0)
	if add {
		typ, flags = unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL
	}
	return newRequest(typ, flags, header).attr(unix.RTA_DST, s.addr.AsSlice()).attr32(unix.RTA_OIF, uint32(s.link))
}

// routeTo asks which route a packet to the address takes.
func routeTo(a netip.Addr) *request {
	header := familyHeader(familyOf(a), unix.SizeofRtMsg)
	header[1] = byte(a.BitLen())
	return newRequest(unix.RTM_GETROUTE, 0, header).attr(unix.RTA_DST, a.AsSlice())
}

func familyOf(a netip.Addr) byte {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}
