package bgp

import "time"

// Session is the session with a neighbor.
type Session struct {
	Neighbor  string    // its key
	State     string    // of RFC 4271, section 8.2.2: "Idle", "Connect", "Active", "OpenSent", "OpenConfirm", "Established"
	Since     time.Time // when it was established or lost; zero: it has been down since the speaker started
	LastError string    // why the last session ended, or why there is none
	Flaps     uint64    // sessions that ended since the daemon started
	Sent      int       // prefixes
	Received  int       // prefixes, before policies
	BFD       string    // "Down", "Init", "Up", "AdminDown"; "": no BFD
}

// Established is the state of a session that exchanges routes.
const Established = "Established"

// Up reports whether the session exchanges routes.
func (s *Session) Up() bool { return s.State == Established }

// UpWithoutBFD reports whether the session is up although its BFD session is not: failures are
// detected late.
func (s *Session) UpWithoutBFD() bool { return s.Up() && s.BFD != "" && s.BFD != "Up" }

// Lasted returns how long the session has been up or down, as text; "never" if it was never up.
func (s *Session) Lasted(now time.Time) string {
	if s.Since.IsZero() {
		return "never"
	}
	return max(0, now.Sub(s.Since)).Truncate(time.Second).String()
}
