package objects

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/control/store"
	"loxilb/internal/lb"
	"loxilb/internal/lb/netobj"
	"loxilb/internal/lb/policy"
)

// errNeedsAccepted aborts a transaction until the connections that this machine has accepted are
// known (see lockout).
var errNeedsAccepted = errors.New("this machine's sessions must be known first")

// lockout describes how a change could end connections that this machine has accepted, such as the
// caller's SSH.
type lockout struct {
	before, after []policy.Rule // firewall rules; nil: no rule drops or redirects packets, or none changes
	paths         []AccessPath
	vips          []netip.Addr // not nil: only services of these VIPs count
}

// AccessPath is a part of the network through which connections arrive, and which a change removes
// or assigns to a service.
type AccessPath struct {
	change  string // the change to it, for the error
	carries func(*policy.AcceptedConnection) bool
}

func (l *lockout) same(o *lockout) bool {
	return o != nil && slices.Equal(l.before, o.before) && slices.Equal(l.after, o.after) &&
		slices.EqualFunc(l.paths, o.paths, func(a, b AccessPath) bool { return a.change == b.change })
}

// lockoutOf returns nil if a transaction cannot disconnect anyone.
func (a *API) lockoutOf(tx *store.Tx) *lockout {
	l := &lockout{paths: a.removedPaths(tx)}
	if len(l.paths) == 0 {
		l.paths, l.vips = a.interceptedPaths(tx)
	} else {
		services, _ := a.interceptedPaths(tx)
		l.paths = append(l.paths, services...)
	}
	for range a.Store.Rules.Differences(tx) {
		l.before, l.after = slices.Collect(a.Store.Rules.All(tx.Before())), slices.Collect(a.Store.Rules.All(tx))
		break
	}
	if !slices.ContainsFunc(l.after, policy.Rule.Disconnects) {
		l.before, l.after = nil, nil
	} else {
		l.vips = nil
	}
	if l.after == nil && l.paths == nil {
		return nil
	}
	return l
}

// removedPaths returns the parts of the network that a transaction removes. Only those made by
// loxilb count: others stay.
func (a *API) removedPaths(tx *store.Tx) []AccessPath {
	var list []AccessPath
	list = append(list, removedPathsOf(a, tx, a.Store.Addresses)...)
	list = append(list, removedPathsOf(a, tx, a.Store.Routes)...)
	list = append(list, removedPathsOf(a, tx, a.Store.VLANs)...)
	list = append(list, removedPathsOf(a, tx, a.Store.VXLANs)...)
	for _, after := range a.Store.Members.Differences(tx) {
		if after != nil && !after.Tagged { // its addresses no longer receive packets
			member := *after
			list = append(list, AccessPath{"putting " + member.Dev + " into " + member.Bridge(), func(s *policy.AcceptedConnection) bool { return netobj.DeviceIsNeededBy(member.Dev, s) }})
		}
	}
	return list
}

// interceptedPaths returns the addresses and ports that new services or VIPs intercept: sockets of
// this machine no longer receive packets there.
func (a *API) interceptedPaths(tx *store.Tx) (list []AccessPath, vips []netip.Addr) {
	for before, after := range a.Store.Services.Differences(tx) {
		if after == nil || after.Protocol != lb.TCP || after.Mark != 0 { // it is unknown which packets have a mark
			continue
		}
		for _, key := range append(after.AdditionalKeys(), after.Key) {
			if before == nil || key != before.Key && !slices.Contains(before.AdditionalVIPs(), key.VIP) {
				list, vips = append(list, AccessPath{"service " + key.String(), func(s *policy.AcceptedConnection) bool { return s.Matches(key) }}), append(vips, key.VIP)
			}
		}
	}
	return list, vips
}

// removedPathsOf returns the removed paths of one kind.
func removedPathsOf[T netobj.Object[T]](a *API, tx *store.Tx, t store.Table[T]) (list []AccessPath) {
	kind := t.Name()
	for before, after := range t.Differences(tx) {
		if before == nil || !a.Network.Created(kind, (*before).Key()) {
			continue
		}
		verb := "deleting "
		if after != nil {
			verb = "changing "
		}
		list = append(list, a.AccessPaths(verb, kind, *before)...)
	}
	return list
}

// AccessPaths returns an object of the kernel's network as a path by which connections arrive; none
// for kinds that carry none.
func (a *API) AccessPaths(verb, kind string, o fmt.Stringer) []AccessPath {
	var isNeededBy func(*policy.AcceptedConnection) bool
	switch o := o.(type) {
	case netobj.Address:
		seen := sync.OnceValue(func() []netobj.DeviceAddresses {
			list, _ := a.Network.Addresses.Observed() // unknown addresses make the check stricter
			return list
		})
		isNeededBy = func(s *policy.AcceptedConnection) bool { return o.IsNeededBy(s, seen()) }
	case netobj.Route:
		isNeededBy = o.IsNeededBy
	case netobj.VLAN:
		isNeededBy = func(s *policy.AcceptedConnection) bool { return netobj.DeviceIsNeededBy(o.Device(), s) }
	case netobj.VXLAN:
		isNeededBy = func(s *policy.AcceptedConnection) bool { return netobj.DeviceIsNeededBy(o.Device(), s) }
	default:
		return nil
	}
	return []AccessPath{{verb + kind + " " + o.String(), isNeededBy}}
}

// committer returns the function that commits changes. Without force, it refuses changes that
// end accepted connections.
func (a *API) committer(force bool) func(store.CommitOptions, func(*store.Tx) error) (revision uint64, changed []store.ID, err error) {
	if force {
		return a.Store.CommitBy
	}
	return a.commitUnlessLockout
}

// commitUnlessLockout commits a change unless it ends accepted connections. Reading connections
// must not block the store: the transaction aborts with errNeedsAccepted, and runs again once they
// are known.
func (a *API) commitUnlessLockout(by store.CommitOptions, edit func(*store.Tx) error) (revision uint64, changed []store.ID, err error) {
	known, checked := (*lockout)(nil), []announced(nil) // checked lockout and addresses
	for {
		var found *lockout
		var addresses []announced
		revision, changed, err = a.Store.CommitBy(by, func(tx *store.Tx) error {
			if err := edit(tx); err != nil {
				return err
			}
			found, addresses = a.lockoutOf(tx), a.newAddresses(tx)
			if (found == nil || found.same(known)) && slices.Equal(addresses, checked) {
				return nil
			}
			return errNeedsAccepted
		})
		if !errors.Is(err, errNeedsAccepted) {
			return revision, changed, err
		}
		if found != nil {
			if p := a.lockoutProblem(found); p != nil {
				return 0, nil, p
			}
		}
		if p := a.addressInUse(addresses); p != nil {
			return 0, nil, p
		}
		known, checked = found, addresses
	}
}

// RefuseDeletion refuses a deletion that ends accepted connections which arrive by these paths.
func (a *API) RefuseDeletion(paths []AccessPath) *rest.Problem {
	return a.lockoutProblem(&lockout{paths: paths})
}

// lockoutProblem refuses a change that ends accepted connections.
func (a *API) lockoutProblem(l *lockout) *rest.Problem {
	accepted, err := a.DataPath.AcceptedConnections(l.vips...)
	if err != nil && l.vips != nil {
		return nil // services must work without the permission to list the machine's connections
	}
	if err != nil {
		return rest.Refuse(http.StatusServiceUnavailable, "cannot check which connections of this machine this ends: %v; force=true (loxicmd --force) applies it nevertheless", err)
	}
	if lost := policy.Disconnected(l.before, l.after, accepted); len(lost) > 0 {
		return rest.Refuse(http.StatusConflict, "these rules would end %s: allow these sessions by a rule of a higher preference, or use force=true (loxicmd --force)", policy.AcceptedNames(lost))
	}
	if lost, causes := l.orphaned(accepted); len(lost) > 0 {
		return rest.Refuse(http.StatusConflict, "%s would end %s: to do it nevertheless, use force=true (loxicmd --force)", strings.Join(causes, ", "), policy.AcceptedNames(lost))
	}
	return nil
}

// orphaned returns the connections that arrive by removed paths, and the changes that remove these.
func (l *lockout) orphaned(accepted []policy.AcceptedConnection) (cut []policy.AcceptedConnection, causes []string) {
	for _, t := range l.paths {
		n := len(cut)
		for i := range accepted {
			if t.carries(&accepted[i]) {
				cut = append(cut, accepted[i])
			}
		}
		if len(cut) > n {
			causes = append(causes, t.change)
		}
	}
	return slices.Compact(cut), causes
}

// disconnected returns the known connections that a change would disconnect.
func (a *API) disconnected(l *lockout) []policy.AcceptedConnection {
	if l == nil {
		return nil
	}
	accepted, err := a.DataPath.AcceptedConnections(l.vips...)
	if err != nil {
		return nil
	}
	orphaned, _ := l.orphaned(accepted)
	return append(policy.Disconnected(l.before, l.after, accepted), orphaned...)
}
