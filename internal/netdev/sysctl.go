package netdev

import (
	"os"
	"strconv"
	"strings"
)

type health struct{}

func newHealth() *health { return &health{} }

func (n *Net) keepForwarding() {}

// sysctl reads a kernel setting of the namespace; name is a path below /proc/sys/net.
func (n *Net) sysctl(name string) (int, error) {
	var value int
	err := n.ns.do(func() error {
		b, err := os.ReadFile("/proc/sys/net/" + name)
		if err != nil {
			return err
		}
		value, err = strconv.Atoi(strings.TrimSpace(string(b)))
		return err
	})
	return value, err
}

// arpIgnore is the arp_ignore in force on a link: the larger of its own and that of all.
func (n *Net) arpIgnore(l Link) int {
	all, _ := n.sysctl("ipv4/conf/all/arp_ignore")
	own, _ := n.sysctl("ipv4/conf/" + l.Name + "/arp_ignore")
	return max(all, own)
}
