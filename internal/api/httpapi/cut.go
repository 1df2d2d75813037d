package httpapi

import (
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"loxilb/internal/control/store"
	"loxilb/internal/lb"
	"loxilb/internal/lb/netobj"
)

// errAsk stops a transaction of which it is not known yet whom it cuts off.
var errAsk = errors.New("it is not known whom the change cuts off")

// severance is what a change does that may cut off whom this machine itself serves: the one who asks, perhaps.
type severance struct {
	before, after []lb.Rule // nil: no rule drops anything, or none changes
	taken         []carrier
	only          []netip.Addr // taken are services of these VIPs, and nothing else
}

// carrier is a part of the network that is taken away, or given to a service.
type carrier struct {
	doing   string // what is done to it
	carries func(*lb.Session) bool
}

func (c *severance) same(d *severance) bool {
	return d != nil && slices.Equal(c.before, d.before) && slices.Equal(c.after, d.after) &&
		slices.EqualFunc(c.taken, d.taken, func(a, b carrier) bool { return a.doing == b.doing })
}

// severed is nil if a transaction can cut nobody off.
func (a *API) severed(tx *store.Tx) *severance {
	c := &severance{taken: a.taken(tx)}
	if len(c.taken) == 0 {
		c.taken, c.only = a.captured(tx)
	} else {
		services, _ := a.captured(tx)
		c.taken = append(c.taken, services...)
	}
	for range a.Store.Rules.Differences(tx) {
		c.before, c.after = slices.Collect(a.Store.Rules.All(tx.Before())), slices.Collect(a.Store.Rules.All(tx))
		break
	}
	if !slices.ContainsFunc(c.after, func(r lb.Rule) bool { return r.Action == lb.RuleDrop }) {
		c.before, c.after = nil, nil
	} else {
		c.only = nil
	}
	if c.after == nil && c.taken == nil {
		return nil
	}
	return c
}

// taken are the parts of the network that a transaction takes away: of those that loxilb has made, as others stay.
func (a *API) taken(tx *store.Tx) []carrier {
	var list []carrier
	list = append(list, takenOf(a, tx, a.addresses())...)
	list = append(list, takenOf(a, tx, a.routes())...)
	list = append(list, takenOf(a, tx, a.vlans())...)
	list = append(list, takenOf(a, tx, a.vxlans())...)
	for _, after := range a.Store.Members.Differences(tx) {
		if after != nil && !after.Tagged { // its addresses get nothing any more
			member := *after
			list = append(list, carrier{"putting " + member.Dev + " into " + member.Bridge(), func(s *lb.Session) bool { return netobj.DeviceCarries(member.Dev, s) }})
		}
	}
	return list
}

// captured are what the services have that a transaction makes, or gives further VIPs: sockets of this machine at the same address and port get nothing any more.
func (a *API) captured(tx *store.Tx) (list []carrier, vips []netip.Addr) {
	for before, after := range a.Store.Services.Differences(tx) {
		if after == nil || after.Protocol != lb.TCP || after.Mark != 0 { // which packets have a mark is not known
			continue
		}
		for _, key := range append(after.SecondaryKeys(), after.Key) {
			if before == nil || key != before.Key && !slices.Contains(before.Secondary, key.VIP) {
				list, vips = append(list, carrier{"service " + key.String(), func(s *lb.Session) bool { return s.At(key) }}), append(vips, key.VIP)
			}
		}
	}
	return list, vips
}

func takenOf[T netobj.Object[T]](a *API, tx *store.Tx, k netKind[T]) (list []carrier) {
	for before, after := range k.table.Differences(tx) {
		if before == nil || !a.Network.Made(k.table.ID("").Kind, (*before).Key()) {
			continue
		}
		verb := "deleting "
		if after != nil {
			verb = "changing "
		}
		list = append(list, k.carrier(verb, *before)...)
	}
	return list
}

// carrier is an object by which sessions may come; none: no session comes by one of its kind.
func (k netKind[T]) carrier(verb string, o T) []carrier {
	var carries func(*lb.Session) bool
	switch o := any(o).(type) {
	case netobj.Address:
		addresses, _ := any(k.kernel).(netobj.Seen[netobj.Address, netobj.DeviceAddresses])
		seen := sync.OnceValue(func() []netobj.DeviceAddresses {
			list, _ := addresses.Seen() // what is not known makes it more careful
			return list
		})
		carries = func(s *lb.Session) bool { return o.Carries(s, seen()) }
	case netobj.Route:
		carries = o.Carries
	case netobj.VLAN:
		carries = func(s *lb.Session) bool { return netobj.DeviceCarries(o.Device(), s) }
	case netobj.VXLAN:
		carries = func(s *lb.Session) bool { return netobj.DeviceCarries(o.Device(), s) }
	default:
		return nil
	}
	return []carrier{{verb + k.table.ID("").Kind + " " + o.String(), carries}}
}

// committer makes changes. Without force, it refuses those that cut somebody off.
func (a *API) committer(force bool) func(store.By, func(*store.Tx) error) (revision uint64, changed []store.ID, err error) {
	if force {
		return a.Store.CommitBy
	}
	return a.commitUnlessCut
}

// commitUnlessCut makes a change, unless it cuts somebody off. Nobody waits for the store while it is found out who that is: the transaction stops, and is run
// again when that is known of what it does.
func (a *API) commitUnlessCut(by store.By, edit func(*store.Tx) error) (revision uint64, changed []store.ID, err error) {
	known, checked := (*severance)(nil), []netip.Addr(nil) // whom it cuts off, and VIPs that no host has
	for {
		var asked *severance
		var vips []netip.Addr
		revision, changed, err = a.Store.CommitBy(by, func(tx *store.Tx) error {
			if err := edit(tx); err != nil {
				return err
			}
			asked, vips = a.severed(tx), a.newVIPs(tx)
			if (asked == nil || asked.same(known)) && slices.Equal(vips, checked) {
				return nil
			}
			return errAsk
		})
		if !errors.Is(err, errAsk) {
			return revision, changed, err
		}
		if asked != nil {
			if p := a.cutProblem(asked); p != nil {
				return 0, nil, p
			}
		}
		if p := a.addressInUse(vips); p != nil {
			return 0, nil, p
		}
		known, checked = asked, vips
	}
}

// cutProblem refuses what cuts somebody off.
func (a *API) cutProblem(c *severance) *problem {
	sessions, err := a.DataPath.Sessions(c.only...)
	if err != nil && c.only != nil {
		return nil // services are made also where nobody may look at the connections of the machine
	}
	if err != nil {
		return refuse(http.StatusServiceUnavailable, "nobody knows whom this cuts off: %v; force=true (loxicmd --force) does it all the same", err)
	}
	if cut := lb.Cut(c.before, c.after, sessions); len(cut) > 0 {
		return refuse(http.StatusConflict, "these rules cut off %s: allow what must go on by a rule of a higher preference, or ask with force=true (loxicmd --force)", lb.CutText(cut))
	}
	if cut, by := c.stranded(sessions); len(cut) > 0 {
		return refuse(http.StatusConflict, "%s cuts off %s: ask with force=true (loxicmd --force) to do it all the same", strings.Join(by, ", "), lb.CutText(cut))
	}
	return nil
}

// stranded are the sessions that come by what is taken away, and what is done to that.
func (c *severance) stranded(sessions []lb.Session) (cut []lb.Session, by []string) {
	for _, t := range c.taken {
		n := len(cut)
		for i := range sessions {
			if t.carries(&sessions[i]) {
				cut = append(cut, sessions[i])
			}
		}
		if len(cut) > n {
			by = append(by, t.doing)
		}
	}
	return slices.Compact(cut), by
}

// cut are those whom a change would cut off, as far as they are known.
func (a *API) cut(c *severance) []lb.Session {
	if c == nil {
		return nil
	}
	sessions, err := a.DataPath.Sessions(c.only...)
	if err != nil {
		return nil
	}
	stranded, _ := c.stranded(sessions)
	return append(lb.Cut(c.before, c.after, sessions), stranded...)
}
