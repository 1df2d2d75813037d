package connections

import (
	"testing"
	"time"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/lb/report"
	"loxilb/test/dptest"
)

// TestIdleEnds checks that established connections with known sequence numbers stay as closed until
// their ends are notified. Others, and those beyond the rate, end silently.
func TestIdleEnds(t *testing.T) {
	t.Parallel()
	const n, rate = 300, 200
	flags := func(f ...bpf.TcConnectionFlag) (all uint8) {
		for _, one := range f {
			all |= uint8(one)
		}
		return all
	}
	const (
		replied, assured = bpf.TcConnectionFlagCONN_REPLIED, bpf.TcConnectionFlagCONN_ASSURED
		far              = 1 << 23
	)
	established := flags(replied, assured)
	for _, c := range []struct {
		name  string
		flags uint8
		trait bpf.TcConnectionTrait
		ahead uint32 // bytes ahead of the other side's acknowledgement
		reset bool
	}{
		{name: "established", flags: established, reset: true},
		{name: "with data under way", flags: established, ahead: 70_000, reset: true},
		{name: "half-open", flags: flags(replied)},
		{name: "closed by the client", flags: established | flags(bpf.TcConnectionFlagCONN_FIN_CLIENT), reset: true},
		{name: "closed by the endpoint", flags: established | flags(bpf.TcConnectionFlagCONN_FIN_ENDPOINT), reset: true},
		{name: "closed by both", flags: established | flags(bpf.TcConnectionFlagCONN_FIN_CLIENT, bpf.TcConnectionFlagCONN_FIN_ENDPOINT)},
		{name: "reset", flags: established | flags(bpf.TcConnectionFlagCONN_RESET)},
		{name: "answered directly", flags: established, trait: bpf.TcConnectionTraitCONN_ONE_WAY},
		{name: "with unknown numbers", flags: established, ahead: far},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := open(t, loader.Settings{Connections: 2000, IdleResets: rate})
			dptest.Fill(t, d.shared, n, dptest.Jiffies(t)-8000*d.shared.Jiffies(time.Second))
			err := dptest.ChangeConnections(d.shared.Conntrack, func(_ bpf.TcConnectionKey, row *bpf.TcConnection) bool {
				row.Flags = row.Flags&uint8(bpf.TcConnectionFlagCONN_REPLY_DIRECTION) | c.flags
				row.Traits |= uint8(c.trait)
				row.SeqEnd += c.ahead
				return true
			})
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			if err := d.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			most := rate + uint64(rate*(time.Since(began)+2*d.shared.Jiffy()).Seconds())
			var got bpf.SweepIdleReport // connections to notify
			if err := d.programs.idleReports.Lookup(uint32(0), &got); err != nil {
				t.Fatal(err)
			}
			if counted := d.IdleEnds(); counted != (report.IdleEnds{Silent: got.Told + got.Untold}) {
				t.Errorf("ended connections are counted as %+v, want all silent: there is no interface to send a RST by", counted)
			}
			if !c.reset {
				if got != (bpf.SweepIdleReport{}) {
					t.Errorf("%+v, want none reset", got)
				}
				return
			}
			if got.Told < rate || got.Told > most || got.Told+got.Untold != n {
				t.Errorf("ended connections are %+v, want %d to %d with a RST, and the others silently", got, rate, most)
			}
			rows := dptest.Connections(t, d.shared)
			if uint64(len(rows)) != 2*got.Told {
				t.Errorf("%d entries are left of %d connections", len(rows), got.Told)
			}
			for _, row := range rows {
				if row.Flags&uint8(bpf.TcConnectionFlagCONN_RESET) == 0 || dptest.Jiffies(t)-row.Seen > d.shared.Jiffies(time.Minute) {
					t.Fatalf("an entry that waits for its RST is not closed since now: %+v", row)
				}
			}
		})
	}
}
