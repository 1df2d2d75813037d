package transport

// Kind is how a request arrived, which decides how its caller is identified.
type Kind int

// The kinds of transports.
const (
	ByLoopback Kind = iota // TCP of this machine: its users
	ByNetwork              // TCP of other machines
	BySocket               // UNIX socket: protected by the file's mode
)
