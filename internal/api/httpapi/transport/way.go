package transport

// Way is how a request came: each way is trusted for another reason.
type Way int

// The ways.
const (
	ByLoopback Way = iota // TCP of this machine: its users
	ByNetwork             // TCP of other machines
	BySocket              // UNIX socket: whoever the file's mode lets in
)
