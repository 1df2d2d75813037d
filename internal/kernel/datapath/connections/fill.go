package connections

import "loxilb/internal/kernel/datapath/conntrack"

// Fill adds entries to the table, as conntrack.Table.Fill does, while it does not grow.
func (t *Table) Fill(entries []conntrack.Entry) error {
	t.growing.Lock()
	defer t.growing.Unlock()
	return t.shared.Conntrack.Fill(entries)
}
