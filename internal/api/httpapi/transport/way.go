package transport

// Way is how a request arrived: each way has its own reason for trust.
type Way int

// The ways.
const (
	ByLoopback Way = iota // TCP of this machine: its users
	ByNetwork             // TCP of other machines
	BySocket              // UNIX socket: whoever the file's mode lets in
)
