package netdev

// LoopbackUp sets lo up: the API listens there and VIPs live there, and in a new namespace it is down.
func (n *Net) LoopbackUp() error {
	v := n.VIPs()
	v.mu.Lock()
	defer v.mu.Unlock()
	_, err := v.loopback()
	return err
}
