package cluster_test

import (
	"fmt"
	"time"
)

// observation is what a crowd has observed during a case.
type observation struct {
	Opened  uint64   `json:"opened"`           // new connections
	Broken  int      `json:"broken"`           // connections older than 10 ms when a node fell silent
	Young   int      `json:"young"`            // those opened through it later
	Refused int      `json:"refused"`          // connections that could not be opened
	Silence float64  `json:"silence"`          // seconds, the longest of a TCP connection
	Flows   float64  `json:"flows"`            // and of a flow of datagrams
	Losses  []string `json:"losses,omitempty"` // descriptions of some
	Slowest string   `json:"slowest"`
}

// maxLosses is how many losses are described.
const maxLosses = 20

// observe returns what has happened since begin.
func (c *crowd) observe() (o observation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	tcp, udp := c.longest("tcp"), c.longest("udp")
	o = observation{Opened: c.opened.Load(), Silence: tcp.took.Seconds(), Flows: udp.took.Seconds(), Slowest: fmt.Sprintf("%s, %s", tcp, udp)}
	for _, l := range c.losses {
		kind := "broken"
		switch {
		case !l.opened:
			o.Refused++
			kind = "not opened"
		case c.isYoung(l.born):
			o.Young++
			kind = "young"
		default:
			o.Broken++
		}
		if len(o.Losses) < maxLosses {
			o.Losses = append(o.Losses, fmt.Sprintf("%s: %s, %v old: %v", kind, l.target, l.age.Round(time.Millisecond), l.err))
		}
	}
	return o
}
