package mirror

import (
	"net/netip"

	"loxilb/internal/event"
)

// Change is the effect of the kernel's messages.
type Change struct {
	Events    []event.Body // links, addresses and neighbours that were added, removed or changed
	NextHops  bool         // a next hop may have changed
	MACs      bool         // ... or has another MAC address
	Messages  int          // number of the kernel's messages for both
	Defaults  bool         // the default routes changed
	Gone      bool         // a route or an address was removed; the kernel may report that before it removes it
	Addresses []netip.Addr // added or removed addresses of others, and removed addresses of ours
	Places    bool         // links or connected networks changed: VIPs may belong elsewhere now
	Loopback  bool         // lo changed: its addresses may be gone
	Unmanaged bool         // the kernel no longer keeps a neighbour resolved that we had managed
	Settings  bool         // settings below /proc/sys/net may have changed
}

// Merge adds another change.
func (c *Change) Merge(o Change) {
	c.Events = append(c.Events, o.Events...)
	c.NextHops = c.NextHops || o.NextHops
	c.MACs = c.MACs || o.MACs
	c.Messages += o.Messages
	c.Defaults = c.Defaults || o.Defaults
	c.Gone = c.Gone || o.Gone
	c.Addresses = append(c.Addresses, o.Addresses...)
	c.Places = c.Places || o.Places
	c.Loopback = c.Loopback || o.Loopback
	c.Unmanaged = c.Unmanaged || o.Unmanaged
	c.Settings = c.Settings || o.Settings
}

// Empty reports whether nothing changed.
func (c *Change) Empty() bool {
	return len(c.Events) == 0 && !c.NextHops && !c.MACs && !c.Defaults && len(c.Addresses) == 0 && !c.Places && !c.Loopback && !c.Unmanaged && !c.Settings
}
