package report

// FTPExpectations are the data connections that control connections of FTP have announced.
type FTPExpectations struct {
	Expected uint64 // announced within the last 30 s, and not opened yet
	// Rows is the number of used rows in the table of expected connections and fragmented
	// datagrams, and Max is its size. Both are 0 without services that have the helper.
	Rows, Max uint64
	// Refused counts announcements that are not followed since the daemon started, by reason:
	// "client" (its address expects too many others) or "port" (none is free at the VIP). "tls"
	// counts control connections that changed to TLS, which hides all of theirs.
	Refused map[string]uint64
}
