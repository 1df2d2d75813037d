package host

import (
	"fmt"
	"strings"

	"loxilb/test/net/rig"
)

// tally holds TCP's counts of both sides.
type tally struct {
	sent  int // segments
	again int // retransmitted segments
	why   map[string]int
	wireCounts
}

// whyNames are counters of the kernel that show why segments were retransmitted, and whether that
// was necessary: a peer that gets a segment twice reports it by DSACK.
var whyNames = []string{"TCPTimeouts", "TCPLossProbes", "TCPFastRetrans", "TCPLostRetransmit", "TCPDSACKRecv", "TCPSACKReorder", "TCPOFOQueue", "TCPSpuriousRTOs"}

func (a tally) since(b tally) tally {
	out := tally{sent: a.sent - b.sent, again: a.again - b.again, why: map[string]int{}}
	for _, name := range whyNames {
		if n := a.why[name] - b.why[name]; n > 0 {
			out.why[name] = n
		}
	}
	return out
}

func (a tally) String() string {
	why := strings.TrimPrefix(fmt.Sprint(a.why), "map")
	return strings.TrimSuffix(fmt.Sprintf("%d of %d segments sent again; %d frames: %d to be completed, %d large %s",
		a.again, a.sent, a.checked, a.partial, a.large, why), " []")
}

// counters adds up the counts of both sides and the guest.
func (n *network) counters() (tally, error) {
	all := rig.ParseCounters(n.run("cat /proc/net/snmp /proc/net/netstat"))
	for _, h := range n.sides() {
		counted, err := rig.Counters(h.host, "snmp", "netstat")
		if err != nil {
			return tally{}, err
		}
		for name, v := range counted {
			all[name] += v
		}
	}
	return tally{sent: all["OutSegs"], again: all["RetransSegs"], why: all}, nil
}
