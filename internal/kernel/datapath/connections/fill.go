package connections

import "loxilb/internal/kernel/datapath/conntrack"

// Fill is conntrack.Table.Fill while the table does not grow.
func (t *Table) Fill(entries []conntrack.Entry) error {
	t.growing.Lock()
	defer t.growing.Unlock()
	return t.shared.Conntrack.Fill(entries)
}
