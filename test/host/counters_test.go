package host

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// tally is what TCP counts on both sides.
type tally struct {
	sent  int // segments
	again int // segments that were sent again
	why   map[string]int
	wireCounts
}

// whyNames are counters of the kernel that say why segments were sent again, and whether that was
// needed: a peer that has got a segment twice says so by DSACK.
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

// counters adds up both sides and the guest.
func (n *network) counters() (sum tally, err error) {
	all := map[string]int{}
	for _, h := range n.sides() {
		err = errors.Join(err, h.host.Do(func() error {
			for _, file := range []string{"snmp", "netstat"} {
				text, err := os.ReadFile("/proc/thread-self/net/" + file)
				if err != nil {
					return err
				}
				addCounters(all, string(text))
			}
			return nil
		}))
	}
	addCounters(all, n.run("cat /proc/net/snmp /proc/net/netstat"))
	return tally{sent: all["OutSegs"], again: all["RetransSegs"], why: all}, err
}

// addCounters reads lines of names, each before a line of values.
func addCounters(all map[string]int, text string) {
	var names []string
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if names == nil {
			names = fields
			continue
		}
		for i, f := range fields {
			if v, err := strconv.Atoi(f); err == nil {
				all[names[i]] += v
			}
		}
		names = nil
	}
}
