package attach

import (
	"net"
	"sync"
	"time"
)

// arrivals caches the MAC addresses of interfaces that are up. The kernel can only list all
// interfaces, which takes milliseconds with a thousand of them, so the list is reused for
// arrivalsAge.
type arrivals struct {
	mu   sync.Mutex
	at   time.Time
	macs map[int]net.HardwareAddr // by index; empty where there is no link layer
}

const arrivalsAge = time.Second

// addresses returns the MAC addresses, at most arrivalsAge old.
func (a *arrivals) addresses(now time.Time) map[int]net.HardwareAddr {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.macs != nil && now.Sub(a.at) < arrivalsAge {
		return a.macs
	}
	all, err := net.Interfaces()
	if err != nil {
		return a.macs
	}
	a.at, a.macs = now, make(map[int]net.HardwareAddr, len(all))
	for _, i := range all {
		if i.Flags&net.FlagUp != 0 {
			a.macs[i.Index] = i.HardwareAddr
		}
	}
	return a.macs
}

// Arrival returns an interface with a hook, at which a simulated packet can arrive: the wanted one
// or, if it has no hook, any other. mac is the interface's address.
func (h *Hooks) Arrival(wanted int) (ifindex int, mac net.HardwareAddr, ok bool) {
	up := h.arrivals.addresses(time.Now())
	h.mu.RLock()
	defer h.mu.RUnlock()
	if mac, ok = up[wanted]; ok && h.attached[wanted] != nil {
		return wanted, mac, true
	}
	for index := range h.attached {
		if mac, ok = up[index]; ok {
			return index, mac, true
		}
	}
	return 0, nil, false
}
