package transport

// Way is the transport of a request, which decides how its caller is identified.
type Way int

// The transports.
const (
	ByLoopback Way = iota // TCP of this machine: its users
	ByNetwork             // TCP of other machines
	BySocket              // UNIX socket: protected by the file's mode
)
