package datapath

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"loxilb/internal/pkt"
)

// TestWatchSCTP checks that watchers see which side closes an association, and that ABORT names
// none: its sender is not recorded.
func TestWatchSCTP(t *testing.T) {
	t.Parallel()
	const vip, endpoint = "10.0.0.1:2020", "192.0.2.1:5001"
	o := newOpener(t, vip+"/sctp endpoints="+endpoint)
	for i, c := range [...]struct {
		name string
		echo int // the tag of COOKIE ECHO
		rest []string
		want []string
	}{
		{"closed by the client", 222, []string{
			"> tag 222 chunks shutdown:4", "< tag 111 chunks shutdown-ack", "> tag 222 chunks shutdown-complete",
		}, []string{"opened", "assured", "closing by client", "ended closed by both", "opened"}},
		{"closed by the endpoint", 222, []string{
			"< tag 111 chunks shutdown:4", "> tag 222 chunks shutdown-ack", "< tag 111 chunks shutdown-complete",
		}, []string{"opened", "assured", "closing by endpoint", "ended closed by both", "opened"}},
		{"aborted by the client after a forged COOKIE ECHO", 222, []string{
			"> chunks init=999", "> tag 888 chunks cookie-echo:40", "> tag 222 chunks abort",
		}, []string{"opened", "assured", "ended reset", "opened"}},
		{"assured by COOKIE ACK after a COOKIE ECHO with an unknown tag", 5, []string{"< tag 111 chunks abort"},
			[]string{"opened", "assured", "ended reset", "opened"}},
		{"aborted by the endpoint", 222, []string{"< tag 111 chunks abort"},
			[]string{"opened", "assured", "ended reset", "opened"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := fmt.Sprintf("198.51.100.1:%d", 2000+i)
			w := watchConnections(t, o.d, 1000)
			echo := fmt.Sprintf("> tag %d chunks cookie-echo:40", c.echo)
			opens := []string{
				"> chunks init=111", "< tag 111 chunks init-ack=222:40", echo, "< tag 111 chunks cookie-ack",
			}
			for _, one := range slices.Concat(opens, c.rest, []string{"> chunks init=777"}) {
				from, to := client, vip
				if one[0] == '<' {
					from, to = endpoint, client
				}
				p, err := pkt.Parse(fmt.Sprintf("sctp %s > %s %s", from, to, one[2:]))
				if err != nil {
					t.Fatal(err)
				}
				frame := p.Build()
				clear(frame[:12]) // the MAC address of lo
				if _, err := program(t, o.d).Run(&ebpf.RunOptions{Data: frame}); err != nil {
					t.Fatal(err)
				}
			}
			var got []string
			events, _ := w.wait(t, len(c.want))
			for _, e := range events {
				text := strings.TrimSpace(e.Act + " " + e.Reason)
				if e.By != "" {
					text += " by " + e.By
				}
				got = append(got, text)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
