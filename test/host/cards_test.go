package host

import (
	"fmt"
	"strconv"
	"strings"
)

// setOffloads configures the offloads of the guest's cards and of their taps.
func (n *network) setOffloads(o offloads) {
	n.t.Helper()
	peers, guest := "off", "off"
	if o == offloadsOn {
		peers = "on"
	}
	if o != offloadsOff {
		guest = "on"
	}
	// virtio cards cannot change "rx". Changing a feature also changes those that depend on it.
	const set = "ethtool -K %s tx %s sg %[2]s tso %[2]s gso %[2]s gro %[2]s || true; ethtool -k %[1]s"
	for _, c := range n.cards() {
		n.checkOffloads("the guest's "+c.name, guest, n.run(set, c.name, guest))
		n.checkOffloads("the tap "+c.name, peers, n.exec(c.host, "sh", "-c", fmt.Sprintf(set, c.name, peers)))
	}
}

// checkOffloads compares the features of a card with what ethtool reports.
func (n *network) checkOffloads(card, want, features string) {
	n.t.Helper()
	for _, name := range []string{
		"tx-checksumming", "tcp-segmentation-offload", "generic-segmentation-offload", "generic-receive-offload",
	} {
		if !strings.Contains(features, fmt.Sprintf("\n%s: %s", name, want)) {
			n.t.Fatalf("%s of %s is not %s:\n%s", name, card, want, features)
		}
	}
}

// queues counts the interrupts of each receive queue of the used cards, as newer drivers report
// packets per queue by netlink only.
func (n *network) queues() map[string]int {
	n.t.Helper()
	counts := map[string]int{}
	for _, c := range n.cards() {
		device := n.run("basename $(readlink /sys/class/net/%s/device)", c.name)
		for line := range strings.Lines(n.run("grep %s-input /proc/interrupts", device)) {
			fields := strings.Fields(line) // 24: COUNT... CHIP KIND virtio2-input.0
			_, queue, _ := strings.Cut(fields[len(fields)-1], "-input.")
			for _, field := range fields[1:] {
				count, err := strconv.Atoi(field)
				if err != nil {
					break
				}
				counts[c.name+" queue "+queue] += count
			}
		}
	}
	return counts
}

// checkQueues checks that each used card has received packets by a queue for each processor.
func (n *network) checkQueues(before map[string]int) {
	n.t.Helper()
	const perCard = 2 // the guest has two processors, and uses no more queues
	after, used := n.queues(), map[string]int{}
	for _, queue := range sortedKeys(after) {
		card, _, _ := strings.Cut(queue, " ")
		if after[queue] > before[queue] {
			used[card]++
		}
		n.t.Logf("%s: %d interrupts", queue, after[queue]-before[queue])
	}
	for _, s := range n.sides() {
		if used[s.card] < perCard {
			n.t.Errorf("%s has received packets by %d queues, want %d", s.card, used[s.card], perCard)
		}
	}
}

// checkFailover makes the bond switch to its second card.
func (n *network) checkFailover(routed map[int]tally) {
	n.t.Helper()
	before := n.received("spare")
	n.run("echo spare >/sys/class/net/bond1/bonding/active_slave")
	for _, family := range families {
		n.compare(routed[family], modes[0], family)
	}
	if n.received("spare") == before {
		n.t.Error("the bond's second card has received no packet")
	}
}

// received returns the number of packets that a card has received by all queues.
func (n *network) received(card string) (sum int) {
	for queue, count := range n.queues() {
		if strings.HasPrefix(queue, card) {
			sum += count
		}
	}
	return sum
}

// watch starts to check all frames that leave the guest.
func (n *network) watch() (list []*wire) {
	n.t.Helper()
	for _, c := range n.cards() {
		w, err := watchWire(c.host, c.name)
		if err != nil {
			n.t.Fatal(err)
		}
		n.t.Cleanup(w.stop)
		list = append(list, w)
	}
	return list
}

// endWatch returns the counts since watch, and checks that they match the offloads.
func (n *network) endWatch(name string, tunnel bool, list []*wire) (sum wireCounts) {
	n.t.Helper()
	for _, w := range list {
		c, err := w.end()
		if err != nil {
			n.t.Errorf("%s: %v", name, err)
		}
		sum.checked += c.checked
		sum.partial += c.partial
		sum.large += c.large
	}
	switch {
	case sum.checked == 0:
		n.t.Errorf("%s: no frame has left the guest", name)
	case n.scenario.offloads == offloadsOff && sum.partial+sum.large > 0:
		n.t.Errorf("%s: %d frames left the guest with partial checksums, and %d larger than the MTU",
			name, sum.partial, sum.large)
	case n.scenario.offloads != offloadsOff && n.scenario.xdp == "off" && !tunnel && sum.large == 0:
		n.t.Errorf("%s: no frame larger than the MTU has left the guest", name)
	}
	return sum
}
