package mirror

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// kernelDefaults asks the kernel for what DefaultRoutes returns.
func kernelDefaults(t *testing.T, h *netnstest.Host) []Hop {
	t.Helper()
	fresh := openHost(t, h, subscriptionBytes)
	if _, err := fresh.surveyOnce(); err != nil {
		t.Fatal(err)
	}
	list, known := fresh.DefaultRoutes()
	if !known {
		t.Fatal("not known after a survey")
	}
	return list
}

// TestDefaultRoutes checks that the mirror follows each way in which default routes change, also
// those that the kernel does not report.
func TestDefaultRoutes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before []string
		change []string
		want   string // names of links
	}{
		"added":             {nil, []string{"route add default via 10.1.0.2"}, "eth0 10.1.0.2"},
		"there before":      {[]string{"route add default via 10.1.0.2"}, nil, "eth0 10.1.0.2"},
		"without a gateway": {nil, []string{"route add default dev x"}, "x"},
		"by another family": {nil, []string{"route add default via inet6 2001:db8:1::2 dev eth0"}, "eth0 2001:db8:1::2"},
		"IPv6":              {nil, []string{"-6 route add default via 2001:db8:1::2"}, "eth0 2001:db8:1::2"},
		"another table":     {nil, []string{"route add default via 10.1.0.2 table 100"}, ""},
		"not quite default": {nil, []string{"route add 0.0.0.0/1 via 10.1.0.2", "-6 route add ::/1 via 2001:db8:1::2"}, ""},
		"refusing":          {nil, []string{"route add unreachable default", "-6 route add blackhole default"}, ""},
		"deleted":           {[]string{"route add default via 10.1.0.2"}, []string{"route del default"}, ""},
		"replaced":          {[]string{"route add default via 10.1.0.2"}, []string{"route replace default via 10.1.0.3"}, "eth0 10.1.0.3"},
		"replaced by none":  {[]string{"route add default via 10.1.0.2"}, []string{"route replace blackhole default"}, ""},
		"IPv6 replaced":     {[]string{"-6 route add default via 2001:db8:1::2"}, []string{"-6 route replace default via 2001:db8:1::3"}, "eth0 2001:db8:1::3"},
		"appended":          {[]string{"route add default via 10.1.0.2"}, []string{"route append default via 10.1.0.3"}, "eth0 10.1.0.2, eth0 10.1.0.3"},
		"appended, replaced": {
			[]string{"route add default via 10.1.0.2", "route append default via 10.1.0.3"},
			[]string{"route replace default via 10.1.0.4"}, "eth0 10.1.0.3, eth0 10.1.0.4",
		},
		"IPv6 appended": {[]string{"-6 route add default via 2001:db8:1::2"}, []string{"-6 route append default via 2001:db8:1::3"}, "eth0 2001:db8:1::2, eth0 2001:db8:1::3"},
		"IPv6 one of several": {[]string{"-6 route add default via 2001:db8:1::2", "-6 route append default via 2001:db8:1::3"},
			[]string{"-6 route del default via 2001:db8:1::2"}, "eth0 2001:db8:1::3"},
		"metrics":             {[]string{"route add default via 10.1.0.2 metric 5"}, []string{"route add default via 10.1.0.3 metric 6", "route del default metric 5"}, "eth0 10.1.0.3"},
		"several next hops":   {nil, []string{"route add default nexthop via 10.1.0.2 nexthop dev x"}, "x, eth0 10.1.0.2"},
		"IPv6 several":        {nil, []string{"-6 route add default nexthop via 2001:db8:1::2 nexthop via 2001:db8:1::3"}, "eth0 2001:db8:1::2, eth0 2001:db8:1::3"},
		"link down":           {[]string{"route add default dev x"}, []string{"link set x down"}, ""},
		"IPv6 link down":      {[]string{"-6 route add default dev x"}, []string{"link set x down"}, ""},
		"carrier lost":        {[]string{"nexthop add id 1 dev x", "route add default nhid 1"}, []string{"link set x2 down"}, ""},
		"link deleted":        {[]string{"route add default dev x", "route add default via 10.1.0.2 metric 9"}, []string{"link del x"}, "eth0 10.1.0.2"},
		"one of several down": {[]string{"route add default nexthop via 10.1.0.2 nexthop dev x"}, []string{"link set x down"}, "x, eth0 10.1.0.2"},
		"address gone":        {[]string{"route add default via 10.7.0.2"}, []string{"addr del 10.7.0.1/24 dev x"}, ""},
		"source gone":         {[]string{"addr add 10.8.0.1/32 dev lo", "route add default via 10.1.0.2 src 10.8.0.1"}, []string{"addr del 10.8.0.1/32 dev lo"}, ""},
		"other address gone":  {[]string{"addr add 10.8.0.1/32 dev lo", "route add default via 10.1.0.2"}, []string{"addr del 10.8.0.1/32 dev lo"}, "eth0 10.1.0.2"},
		"object":              {nil, []string{"nexthop add id 1 via 10.1.0.2 dev eth0", "route add default nhid 1"}, "eth0 10.1.0.2"},
		"object changed":      {[]string{"nexthop add id 1 via 10.1.0.2 dev eth0", "route add default nhid 1"}, []string{"nexthop replace id 1 via 10.1.0.3 dev eth0"}, "eth0 10.1.0.3"},
		"object gone":         {[]string{"nexthop add id 1 via 10.1.0.2 dev eth0", "route add default nhid 1"}, []string{"nexthop del id 1"}, ""},
		"object's link down":  {[]string{"nexthop add id 1 dev x", "route add default nhid 1"}, []string{"link set x down"}, ""},
		"group": {nil, []string{"nexthop add id 1 via 10.1.0.2 dev eth0", "nexthop add id 2 dev x", "nexthop add id 3 group 1/2",
			"route add default nhid 3"}, "x, eth0 10.1.0.2"},
		"group's member gone": {[]string{"nexthop add id 1 via 10.1.0.2 dev eth0", "nexthop add id 2 dev x", "nexthop add id 3 group 1/2",
			"route add default nhid 3"}, []string{"nexthop del id 2"}, "eth0 10.1.0.2"},
		"member's link down": {[]string{"nexthop add id 1 via 10.1.0.2 dev eth0", "nexthop add id 2 dev x", "nexthop add id 3 group 1/2",
			"route add default nhid 3"}, []string{"link set x down"}, "eth0 10.1.0.2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, _ := labtest.Pair(t)
			commands(t, a, "link add x type veth peer name x2")
			if !strings.Contains(strings.Join(append(c.before, c.change...), " "), "-6") {
				// The kernel reports that IPv6 addresses are removed with their link, which would
				// hide that it does not report routes.
				labtest.Run(t, a, "sysctl", "-w", "net.ipv6.conf.x.disable_ipv6=1")
			}
			commands(t, a, append([]string{"link set x2 up", "link set x up", "addr add 10.7.0.1/24 dev x"}, c.before...)...)
			m := openHost(t, a, subscriptionBytes)
			follow(t, m)
			is := func(want string) {
				t.Helper()
				labtest.Eventually(t, patience, func(context.Context) error {
					list, known := m.DefaultRoutes()
					var got []string
					for _, h := range list {
						word := m.Link(h.Link).Name
						if h.Via.IsValid() {
							word += " " + h.Via.String()
						}
						got = append(got, word)
					}
					words := strings.Split(want, ", ")
					if want == "" {
						words = nil
					}
					slices.Sort(got)
					slices.Sort(words)
					if !known || !slices.Equal(got, words) {
						return fmt.Errorf("%v, known %v; want %v", got, known, words)
					}
					return nil
				})
			}
			labtest.Eventually(t, patience, func(context.Context) error {
				if !m.Surveyed() {
					return errors.New("not surveyed")
				}
				return nil
			})
			if c.change == nil {
				is(c.want)
				return
			}
			commands(t, a, c.change...)
			is(c.want)
		})
	}
}

// TestDefaultRoutesAtRandom checks that after random changes the mirror equals the kernel, with few
// surveys: most changes are followed without one.
func TestDefaultRoutesAtRandom(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	a, _ := labtest.Pair(t)
	setup := []string{"link add x type veth peer name x2", "link add y type veth peer name y2", "link set x2 up", "link set y2 up"}
	restore := []string{
		"link set x up", "link set y up", "addr replace 10.7.0.1/24 dev x", "addr replace 10.8.0.1/24 dev y",
		"-6 addr replace 2001:db8:7::1/64 dev x nodad", "-6 addr replace 2001:db8:8::1/64 dev y nodad",
	}
	commands(t, a, append(setup, restore...)...)
	m := openHost(t, a, subscriptionBytes)
	follow(t, m)
	pick := func(words ...string) string { return words[rng.IntN(len(words))] }
	hop4 := func() string {
		return pick("via 10.1.0.2", "via 10.1.0.3", "via 10.7.0.2", "via 10.8.0.2", "dev x", "dev y")
	}
	hop6 := func() string {
		return pick("via 2001:db8:1::2", "via 2001:db8:1::3", "via 2001:db8:7::2", "via 2001:db8:8::2")
	}
	step := func() string {
		verb := pick("add", "replace", "append", "del", "del")
		metric := pick("", "", " metric 7")
		switch rng.IntN(8) {
		case 0, 1, 2:
			return "route " + verb + " default " + hop4() + metric
		case 3:
			return "-6 route " + verb + " default " + hop6() + metric
		case 4:
			return "route replace default nexthop " + hop4() + " nexthop " + hop4() + metric
		case 5:
			return "-6 route replace default nexthop " + hop6() + " nexthop " + hop6() + metric
		case 6:
			return "link set " + pick("x", "y") + " " + pick("down", "up", "up")
		}
		return "addr " + pick("del", "replace") + " " + pick("10.7.0.1/24 dev x", "10.8.0.1/24 dev y")
	}
	for range 12 {
		lines := slices.Clone(restore)
		for range 12 {
			lines = append(lines, step())
		}
		labtest.Run(t, a, "sh", "-c", "(ip "+strings.Join(lines, "; ip ")+") >/dev/null 2>&1; true")
		want := kernelDefaults(t, a)
		labtest.Eventually(t, patience, func(context.Context) error {
			list, known := m.DefaultRoutes()
			if diff := cmp.Diff(want, list, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" || !known {
				return fmt.Errorf("known %v, -kernel +mirror\n%s\nafter\n%s", known, diff, strings.Join(lines, "\n"))
			}
			return nil
		})
	}
}
