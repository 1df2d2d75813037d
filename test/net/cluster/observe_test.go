package cluster_test

import (
	"fmt"
	"time"
)

// observation is what clients have observed during a case.
type observation struct {
	Opened     uint64   `json:"opened"`           // new connections
	Broken     int      `json:"broken"`           // connections opened before a node fell silent
	Late       int      `json:"young"`            // connections opened through a silent node
	NotOpened  int      `json:"refused"`          // connections that could not be opened
	LongestTCP float64  `json:"silence"`          // the longest wait for an answer over TCP, in seconds
	LongestUDP float64  `json:"flows"`            // the same over UDP
	Losses     []string `json:"losses,omitempty"` // descriptions of some
	Slowest    string   `json:"slowest"`
}

// maxLosses is the number of losses that are described.
const maxLosses = 20

// observe returns what clients have observed since reset.
func (c *clients) observe() (o observation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	tcp, udp := c.slowest("tcp"), c.slowest("udp")
	o = observation{Opened: c.opened.Load(), LongestTCP: tcp.took.Seconds(), LongestUDP: udp.took.Seconds(), Slowest: fmt.Sprintf("%s, %s", tcp, udp)}
	for _, l := range c.losses {
		kind := "broken"
		switch {
		case !l.opened:
			o.NotOpened++
			kind = "not opened"
		case c.openedLate(l.times):
			o.Late++
			kind = "late"
		default:
			o.Broken++
		}
		if len(o.Losses) < maxLosses {
			o.Losses = append(o.Losses, fmt.Sprintf("%s: %s, %v old: %v", kind, l.target, l.age.Round(time.Millisecond), l.err))
		}
	}
	return o
}
