package policy

import (
	"net/netip"
	"testing"

	"loxilb/internal/kernel/datapath/bpf"
)

// TestSourceRows checks that for each kind and direction the longest prefix with an attachment
// counts, and attachments of IPv6 do not apply to IPv4.
func TestSourceRows(t *testing.T) {
	t.Parallel()
	row := func(p0, p1, m0, m1 uint64) bpf.TcAttachments {
		return bpf.TcAttachments{Policers: [2]uint64{p0, p1}, Mirrors: [2]uint64{m0, m1}}
	}
	for _, c := range []struct {
		name       string
		want, rows map[string]bpf.TcAttachments
	}{
		{
			"a longer prefix with a mirror keeps the policer of the shorter one",
			map[string]bpf.TcAttachments{"10.0.0.0/8": row(1, 1, 0, 0), "10.1.0.0/16": row(0, 0, 2, 0), "10.1.2.3/32": row(3, 0, 0, 0), "11.0.0.0/8": row(0, 0, 4, 0)},
			map[string]bpf.TcAttachments{"10.0.0.0/8": row(1, 1, 0, 0), "10.1.0.0/16": row(1, 1, 2, 0), "10.1.2.3/32": row(3, 1, 2, 0), "11.0.0.0/8": row(0, 0, 4, 0)},
		},
		{
			"all of IPv6 is not IPv4",
			map[string]bpf.TcAttachments{"::/0": row(1, 0, 0, 0), "2001:db8::/32": row(0, 0, 2, 0), "10.0.0.0/8": row(0, 0, 3, 0)},
			map[string]bpf.TcAttachments{"::/0": row(1, 0, 0, 0), "2001:db8::/32": row(1, 0, 2, 0), "10.0.0.0/8": row(0, 0, 3, 0), "0.0.0.0/0": {}},
		},
		{
			"both",
			map[string]bpf.TcAttachments{"::/0": row(1, 0, 0, 0), "0.0.0.0/0": row(0, 2, 0, 0), "10.0.0.0/8": row(0, 0, 3, 0)},
			map[string]bpf.TcAttachments{"::/0": row(1, 0, 0, 0), "0.0.0.0/0": row(0, 2, 0, 0), "10.0.0.0/8": row(0, 2, 3, 0)},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			want := map[netip.Prefix]bpf.TcAttachments{}
			for p, r := range c.want {
				want[netip.MustParsePrefix(p)] = r
			}
			got := sourceRows(want)
			if len(got) != len(c.rows) {
				t.Errorf("%d rows, want %d: %v", len(got), len(c.rows), got)
			}
			for text, r := range c.rows {
				p := netip.MustParsePrefix(text)
				bits := p.Bits()
				if p.Addr().Is4() {
					bits += 96
				}
				if have, there := got[bpf.TcAttachedSource{PrefixLength: uint32(bits), Addr: bpf.Addr(p.Addr())}]; !there || have != r {
					t.Errorf("%s has %v (%v), want %v", p, have, there, r)
				}
			}
		})
	}
}
