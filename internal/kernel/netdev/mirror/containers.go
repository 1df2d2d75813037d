package mirror

// Containers are the links that lead to containers of this machine alone. These have this machine
// as their router, so their answers to any client pass it.
type Containers struct {
	veths   map[int]bool // with another end in another namespace
	bridges map[int]bool // bridges whose ports are all veths of containers
}

// Containers returns the links, or none until the default routes are known. A link with a default
// route is excluded: this machine may itself be a container.
func (m *Mirror) Containers() Containers {
	c := Containers{map[int]bool{}, map[int]bool{}}
	t := m.tables
	t.mu.RLock()
	defer t.mu.RUnlock()
	if !t.routing.known {
		return c
	}
	for i, l := range t.links {
		leads := l.Kind == "veth" && l.PeerElsewhere
		if leads {
			c.veths[i] = true
		}
		if others, seen := c.bridges[l.Master]; l.Master != 0 && t.links[l.Master].Kind == "bridge" {
			c.bridges[l.Master] = leads && (others || !seen)
		}
	}
	for _, h := range t.routing.defaults.list() {
		delete(c.veths, h.Link)
		delete(c.bridges, h.Link)
	}
	return c
}

// Veth reports whether a link is a veth to one container.
func (c Containers) Veth(link int) bool { return c.veths[link] }

// Bridge reports whether a link is a bridge of containers.
func (c Containers) Bridge(link int) bool { return c.bridges[link] }
