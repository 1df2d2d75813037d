package doctor

import "fmt"

// Table is a table of the data path that packets fill.
type Table struct {
	Name      string
	Rows, Max uint64 // used rows, and all rows
}

// nearlyFull reports whether the last tenth of a table is in use. most is 0 if it is unknown.
func nearlyFull(rows, most uint64) bool { return most > 0 && rows*10 >= most*9 }

// fullTables reports tables that are nearly full. A full connection table refuses clients,
// which the services and the log report.
func fullTables(m *Machine) (out []Finding, err error) {
	for _, t := range m.Facts.Tables {
		if !nearlyFull(t.Rows, t.Max) {
			continue
		}
		f := Finding{About: t.Name, Sure: Likely}
		switch t.Name {
		case "persists":
			f.What = fmt.Sprintf("the table of clients that --select=persist remembers has %d of %d rows in use", t.Rows, t.Max)
			f.Why = "further clients may change endpoints when the endpoints of their service change"
			f.Command = "shorten --persist-timeout; or loxilb --detach, which ends connections, and start with a larger --ct-max"
		case "snat_usages":
			f.What = fmt.Sprintf("the table of pairs of source address and endpoint has %d of %d rows in use", t.Rows, t.Max)
			f.Why = "connections from a source address of loxilb to further endpoints or peers are dropped (no-memory)"
			f.Command = "find an endpoint that scans addresses: loxicmd get ct"
		default:
			continue
		}
		out = append(out, f)
	}
	return out, m.Facts.TablesError
}
