package lb

// IdleEnds counts TCP connections that were established and silent for too long.
type IdleEnds struct {
	Told   uint64 // both ends got a RST
	Untold uint64 // they ended in silence: too many at once
}

// Ended counts connections that were ended on demand.
type Ended struct {
	Told   int // TCP: both ends got a RST
	Silent int // all others: the next packet opens another one, or is refused
	Next   int // where to go on if some may be left
}

// EndRateMax is the most that may be ended in a second.
const EndRateMax = 10_000
