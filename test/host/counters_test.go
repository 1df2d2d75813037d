package host

import (
	"fmt"
	"strings"

	"loxilb/test/net/rig"
)

// tally is the sum of both sides' TCP counters.
type tally struct {
	sent          int            // segments
	retransmitted int            // segments
	reasons       map[string]int // by counter
	wireCounts
}

// retransmissionCounters are counters of the kernel that show why segments were retransmitted, and
// whether that was necessary: a peer that gets a segment twice reports it by DSACK.
var retransmissionCounters = []string{"TCPTimeouts", "TCPLossProbes", "TCPFastRetrans", "TCPLostRetransmit", "TCPDSACKRecv", "TCPSACKReorder", "TCPOFOQueue", "TCPSpuriousRTOs"}

func (a tally) since(b tally) tally {
	out := tally{sent: a.sent - b.sent, retransmitted: a.retransmitted - b.retransmitted, reasons: map[string]int{}}
	for _, name := range retransmissionCounters {
		if n := a.reasons[name] - b.reasons[name]; n > 0 {
			out.reasons[name] = n
		}
	}
	return out
}

func (a tally) String() string {
	why := strings.TrimPrefix(fmt.Sprint(a.reasons), "map")
	return strings.TrimSuffix(fmt.Sprintf("%d of %d segments sent again; %d frames: %d to be completed, %d large %s",
		a.retransmitted, a.sent, a.checked, a.partial, a.large, why), " []")
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
	return tally{sent: all["OutSegs"], retransmitted: all["RetransSegs"], reasons: all}, nil
}
