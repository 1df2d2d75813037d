package mirror

import "net/netip"

// Change says what messages of the kernel changed, for those who act on it.
type Change struct {
	Links     bool         // a link came, went, or changed a member that Link shows
	NextHops  bool         // a next hop that was found before may be another one now
	Gone      bool         // a route or an address went: the kernel may tell that a moment before it is so
	Addresses []netip.Addr // addresses of others that came or went, and ours that went
	Places    bool         // links or connected networks changed: VIPs may belong elsewhere now
	Loopback  bool         // lo changed: what was on it may be gone
	Unmanaged bool         // a neighbour that we had managed is not any more
	Settings  bool         // settings below /proc/sys/net may have changed
}

// Merge adds what another change says.
func (c *Change) Merge(o Change) {
	c.Links = c.Links || o.Links
	c.NextHops = c.NextHops || o.NextHops
	c.Gone = c.Gone || o.Gone
	c.Addresses = append(c.Addresses, o.Addresses...)
	c.Places = c.Places || o.Places
	c.Loopback = c.Loopback || o.Loopback
	c.Unmanaged = c.Unmanaged || o.Unmanaged
	c.Settings = c.Settings || o.Settings
}

// Empty says whether nothing changed.
func (c *Change) Empty() bool {
	return !c.Links && !c.NextHops && len(c.Addresses) == 0 && !c.Places && !c.Loopback && !c.Unmanaged && !c.Settings
}
