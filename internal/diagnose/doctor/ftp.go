package doctor

import "fmt"

// FTPConnections are data connections of FTP that were announced.
type FTPConnections struct {
	Refused   uint64 // too many others were expected from the client's address
	TLS       uint64 // control connections that changed to TLS
	Rows, Max uint64 // used rows, and all rows, of the table that is shared with fragments
}

// ftp reports data connections of FTP that were refused, cannot be recognized, or may be evicted.
func ftp(m *Machine) (out []Finding, err error) {
	c := m.Facts.FTP
	if c.Refused > 0 {
		out = append(out, Finding{
			About: "client", What: fmt.Sprintf("%d data connections of FTP were refused: too many others were expected from the client's address", c.Refused), Sure: Possible,
			Why: "these transfers fail", Command: "find the client: loxicmd get ct; give the clients behind one address several addresses",
		})
	}
	if c.TLS > 0 {
		out = append(out, Finding{
			About: "tls", What: fmt.Sprintf("control connections of FTP changed to TLS (AUTH): %d", c.TLS), Sure: Likely,
			Why:     "loxilb cannot read which data connections they announce, so transfers fail",
			Command: "balance a range of ports with --select=persist instead of --helper=ftp (loxicmd create lb --help), or turn TLS off at the servers",
		})
	}
	if nearlyFull(c.Rows, c.Max) {
		out = append(out, Finding{
			About: "table", What: fmt.Sprintf("the table of fragments and expected data connections of FTP has %d of %d rows in use", c.Rows, c.Max), Sure: Likely,
			Why: "the least recently used are forgotten: FTP transfers fail, and fragments are dropped", Command: "find the senders: tcpdump -ni any 'ip[6:2] & 0x3fff != 0 or tcp port 21'",
		})
	}
	return out, m.Facts.FTPError
}
