package netdev

// Prepare sets lo up (the API listens there and VIPs live there, and in a new namespace it is down) and lets packets be
// forwarded from it, so that the data path may be attached. Run keeps both.
func (n *Net) Prepare() error {
	v := n.vips
	v.mu.Lock()
	_, err := v.loopback()
	v.mu.Unlock()
	n.keepForwarding()
	return err
}
